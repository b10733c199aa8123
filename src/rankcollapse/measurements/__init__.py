"""One module per measurement: ``measure(settings, *, device, seed, track)`` returns named tensors."""
