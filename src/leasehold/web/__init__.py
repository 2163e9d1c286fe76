"""The dashboard: pages that show in a browser the same answers as `kubectl runs`.

An architectural ring of its own: of the program it reads only the records of
`control.questions.answers`. It computes nothing and writes nothing. Its dependencies are in
`dependencies.PageDependencies`, which the composition root fills in. Everything is readable without
JavaScript. With JavaScript, pages update live (`static/live.js`), the fleet is drawn on a canvas
with a time slider, and the browser verifies draws and digests.
"""
