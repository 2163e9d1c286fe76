"""A second implementation of the rule book (`docs/rules.md`), as simple as it can be.

It has plain lists, no index and no cache: the calendar is rebuilt at every instant. The model
decides by itself, and the product is compared with it on random stories.

The decisions are in the modules that the rules name: `money` (C), `packing` (P), `queue` (Q and G),
`resolve` (R and A), `overdraft` (O), `bind` (B), `life` (S, F and how runs end), `resize` (E),
`lottery`. `facts` has the records, `calendar` what is free, `play` the course of time.
"""
