"""Whether the files a measurement reads are there and hold enough, asked before any job starts. Torch-free."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankcollapse.architectures import check_architecture
from rankcollapse.config import Measurements, input_files
from rankcollapse.settings import EncoderDepth, Gpt2Attention, RobertaAttention, RobertaRank, TinybertWidth
from rankcollapse.tokens import check_text, longest_pattern, passages, shortened
from rankcollapse.validation import ConfigError


def check_inputs(measurements: Measurements) -> None:
    """Raise ``ConfigError``, one line, for the first file that is missing, too short or without what is asked of it."""
    for name, check in CHECKS.items():
        settings = getattr(measurements, name)
        for path in input_files(settings):
            if not Path(path).is_file():
                raise ConfigError(f"config: measurements.{name} names {path!r}: no such file; allowed: a text file")
        check(settings)


def _encoder_depth(settings: EncoderDepth) -> None:
    for name in settings.architectures:
        check_architecture(settings.models, name, tokens=settings.tokens)
    passages(settings.text, settings.texts, settings.tokens, "bert")


def _roberta_attention(settings: RobertaAttention) -> None:
    check_architecture(settings.models, settings.architecture, tokens=max(settings.lengths), heads=settings.head + 1)
    if "text" in settings.sources:
        check_text(settings.text, max(settings.lengths), "roberta")


def _tinybert_width(settings: TinybertWidth) -> None:
    longest = max(settings.lengths + settings.spectrum_lengths)
    check_architecture(settings.models, settings.architecture, tokens=longest, heads=settings.head + 1)
    if "text" in settings.sources:
        check_text(settings.text, longest, "bert")
    if "published" in settings.sources:
        shortened(longest_pattern(settings.repeats), longest)


def _gpt2_attention(settings: Gpt2Attention) -> None:
    longest = max(settings.length, *settings.lengths)
    check_architecture(settings.models, settings.architecture, tokens=longest, heads=settings.head + 1)
    check_text(settings.text, longest, "gpt2")
    if "published" in settings.sources:
        shortened(longest_pattern(settings.repeats), settings.length + 2)


def _roberta_rank(settings: RobertaRank) -> None:
    longest = max(settings.depth_length, *settings.lengths)
    check_architecture(settings.models, settings.architecture, tokens=longest)
    shortened(longest_pattern(settings.repeats), longest)


CHECKS: dict[str, Callable[[Any], None]] = {
    "encoder_depth": _encoder_depth,
    "roberta_attention": _roberta_attention,
    "tinybert_width": _tinybert_width,
    "gpt2_attention": _gpt2_attention,
    "roberta_rank": _roberta_rank,
}
