"""The training loop: learn, augment, evaluate."""
