"""A coverage-guided fuzzer in plain Python for parsers of untrusted bytes.

`target` describes the parser that is fuzzed, `coverage` records which lines an input reached, `mutating` makes new
inputs, `limits` bounds each input, `session` is the loop, `child` the process that runs it, and `watching` the process
that supervises the child. `docs/design/fuzzing.md` says why Tarn has its own fuzzer and how to use it.
"""
