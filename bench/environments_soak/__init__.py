"""`python -m bench environments-soak`: threads on exec-servers in network namespaces, with faults at random, and a
checker that compares what their commands did with what clients and models were told.
"""
