"""A second implementation of the rule book (`docs/rules.md`), as simple as it can be.

Plain lists, no index, no memory of what was computed: the calendar is made again at every instant.
It decides alone; the product is compared with it on random stories.

The decisions are in the modules that the rules name: `money` (C), `packing` (P), `queue` (Q and G),
`resolve` (R and A), `overdraft` (O), `bind` (B), `life` (S, F and how runs end), `resize` (E),
`lottery`. `facts` has the records, `calendar` what is free, `play` the course of time.
"""
