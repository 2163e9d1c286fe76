"""The dashboard: pages that show in a browser what `kubectl runs` tells, from the same answers.

A ring of its own, which reads the records of `control.questions.answers` and nothing else of the
program: it computes nothing and writes nothing. What the pages stand on is `house.House`, which the
composition root fills in. Without JavaScript everything can be read; with it, pages follow what
happens (`static/live.js`), the fleet is drawn on a canvas and moves through time, and a reader's
own browser checks draws and digests.
"""
