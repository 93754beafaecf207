"""A coverage-guided fuzzer in plain Python: what parses bytes from outside is fed bytes nobody would write.

`target` says what is fuzzed, `coverage` which lines an input reached, `mutating` makes inputs from
inputs, `limits` bounds each, `session` is the loop, `child` the process that it runs in, `watching` the
process that outlives it. `docs/design/fuzzing.md` says why it is our own and how to use it.
"""
