"""How many cases a property is checked with: few, many (`--hypothesis-profile thorough`) or many new ones (`new`).

The first two are the same cases every time, so that a change passes or fails for what it changed.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "few",
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
settings.register_profile("thorough", settings.get_profile("few"), max_examples=150)
settings.register_profile("new", settings.get_profile("few"), max_examples=400, derandomize=False, print_blob=True)
settings.load_profile("few")
