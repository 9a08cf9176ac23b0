"""A plugin that allows bf16 on a CPU, where some processors are faster with it.

`scommer run s-cifar10 --variant plus --set width=16 --precision bf16 --plugin docs/plus-narrow/bf16_on_cpu.py`
"""

from scommer.runs import options, runner

for module in (options, runner):
    module.choose_precision = lambda wanted, device: wanted or "bf16"  # type: ignore[attr-defined]
