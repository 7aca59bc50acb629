"""The web for models whose provider does not search it: one search server, and pages as text.

`pages` makes the requests and owns their limits; `readable`, `robots` and `search` are pure. What may be asked is
decided before, in `treadle.agent.tools.web_tools`; that no request goes to an address that is not public, below, in
`treadle.http.public_address`.
"""
