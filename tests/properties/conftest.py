"""How many cases a property is checked with: few, always the same, or many with `--hypothesis-profile thorough`."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "few",
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
settings.register_profile("thorough", settings.get_profile("few"), max_examples=400, derandomize=False)
settings.load_profile("few")
