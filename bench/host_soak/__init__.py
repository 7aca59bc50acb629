"""The soak of the host: one conversation over hundreds of turns, with everything that goes wrong in the world.

`python -m bench host-soak --help`. The turns and their faults are drawn from a seed; after every turn the store is read
from outside, and everything that it has too little or too much of is reported.
"""
