"""A second implementation of the whole decision, and a comparison with the product.

Written from the design alone and kept dumb: plain lists, no index, no journal, no cache; every
answer is worked out again at every instant. Where it differs from the product on a story, one of
the two is wrong. `python -m tests.model --help` says how to ask.

    story.py     a scenario file as plain records
    world.py     nodes, budgets, runs, leases: what is so
    money.py     who pays: the family, the walk, what an envelope has left
    places.py    where it runs: rooms over time, packing
    admit.py     both together
    line.py      who waits, what is planned, what is kept
    cuts.py      making room: spares, rounds, the lottery, giving back
    debts.py     overdrafts, refinancing, an owner who takes its envelope back
    life.py      pods and what becomes of runs; swaps
    resize.py    elastic runs
    play.py      time: which instant is next, and what is done there
    judge.py     whether a file's own expectations hold of the model
    product.py   the same file on the product
    compare.py   the first instant at which they differ
    stories.py   random stories from a seed
    smaller.py   the smallest story that still differs
"""
