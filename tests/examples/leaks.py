"""Which step leaks: every step is a scope, and what outlives its step is told."""

import json

import cuddy

history = []  # a bug: keeps the third step's activations for ever

for step in range(5):
    with cuddy.scope("step"):
        activations = cuddy.empty(6_000_000)
        cuddy.annotate(activations, f"activations of step {step}")
        if step == 2:
            history.append(activations)
        del activations

for block in cuddy.leaks("step"):
    print(json.dumps({key: block[key] for key in ("run", "requested", "label")}))

# Prints:
# {"run": 3, "requested": 6000000, "label": "activations of step 2"}
