"""The serving gate: nine boxes for one model, each ticked only by evidence with a date; docs/gate.md."""
