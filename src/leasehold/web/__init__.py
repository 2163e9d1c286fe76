"""The dashboard: pages that show in a browser the same answers as `kubectl runs`.

An architectural ring of its own: it reads the records of `control.questions.answers` and nothing
else of the program, computes nothing and writes nothing. Its dependencies are in `house.House`,
which the composition root fills in. Everything is readable without JavaScript. With it, pages
update live (`static/live.js`), the fleet is drawn on a canvas with a time slider, and the browser
verifies draws and digests.
"""
