"""Facts of a made-up run: tests take them as they are, or with `replace`."""

from scommer.runs.facts import CodeFacts, DeviceFacts, ExperimentFacts, StreamFacts, Times

EXPERIMENT = ExperimentFacts(stream="s-digits", method="scommer", buffer=50, seed=0, variant="official", validation=0.0)
STREAM = StreamFacts(
    name="s-digits",
    kind="class-il",
    data="digits",
    image_shape=[1, 8, 8],
    fingerprint="f1",
    classes=["zero", "one", "two", "three"],
    tasks=[[0, 1], [2, 3]],
)
CODE = CodeFacts(commit="0" * 40, dirty=False, sources="ab", earlier=[])
DEVICE = DeviceFacts(type="cpu", name="x86_64", threads=1, precision="fp32")
TIMES = Times(started="2026-01-01T00:00:00+00:00", finished="2026-01-01T00:01:00+00:00", seconds=1.5, steps=40)
