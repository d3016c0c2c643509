"""The story of a scheduler, in seven stages, each told on a pretend clock.

A stage is a module that plays its idea, and where the idea fails, on the real core and services in
the simulation: so it tells the same every time. `docs/story.md` shows what they tell.
"""
