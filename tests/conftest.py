"""For all tests: how hypothesis works here."""

from hypothesis import settings

# No test judges speed; a busy machine must not fail one.
settings.register_profile("orbitmq", deadline=None)
settings.load_profile("orbitmq")
