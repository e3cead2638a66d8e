"""Coverage-guided fuzzing of everything that reads what others write.

    python -m certify_assets_tests.fuzzing [--seconds 300 | --inputs N] [--reader NAME ...]
                                           [--found DIR]

Runs atheris on each reader, that many seconds each, from the hand-made sources of the tests and the
inputs in ``corpus/``. An input is a failure where a reader ends in anything but a result or a
`CertifyError`, or takes longer than ten seconds. Inputs that reached new lines are
merged into the smallest set that reaches the same; ``--found DIR`` keeps them there.
"""
