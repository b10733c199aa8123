"""What a measurement's files and its figure need, asked before any job starts. Torch-free.

A measurement alone runs with less, such as one configuration; the figure drawn from it does not.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankcollapse.architectures import check_architecture
from rankcollapse.config import Measurements, input_files
from rankcollapse.settings.dong import EncoderDepth
from rankcollapse.settings.encoders import Gpt2Attention, RobertaAttention, RobertaRank, TinybertWidth
from rankcollapse.tokens import check_text, longest_pattern, passages, shortened
from rankcollapse.validation import ConfigError


def check_inputs(measurements: Measurements) -> None:
    """Raise ``ConfigError``, one line, for the first file or setting without what is asked of it."""
    for name, holds, needed in NEEDS:
        if not holds(getattr(measurements, name)):
            raise ConfigError(f"config: measurements.{name}.{needed}")
    for name, check in CHECKS.items():
        settings = getattr(measurements, name)
        for path in input_files(settings):
            if not Path(path).is_file():
                raise ConfigError(f"config: measurements.{name} names {path!r}: no such file; allowed: a text file")
        check(settings)


NEEDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("san_depth", lambda s: "mean" in s.inputs, "inputs: allowed: mean, with others or alone"),
    ("attention_step", lambda s: 0 in s.mean_sizes and max(s.mean_sizes) > 0, "mean_sizes: allowed: 0 and another"),
    ("attention_step", lambda s: s.scale_decades[0] <= -3, "scale_decades: allowed: from -3 or below"),
    (
        "markov_depth",
        lambda s: len({config.split(" + ")[0] == "A" for config in s.configs}) == 2,
        "configs: allowed: some with the gap (A ...) and some without",
    ),
    *(
        (name, lambda s: s.runs >= 2 and s.layers >= 3, "runs, layers: allowed: from 2 runs and 3 layers")
        for name in ("sorting_task", "hull_task", "memorization_task")
    ),
    ("markov_depth", lambda s: s.depth >= 3, "depth: allowed: 3 or more, to see a fall"),
    ("roberta_attention", lambda s: "text" in s.sources, "sources: allowed: text, with published or alone"),
    ("roberta_attention", lambda s: 0.02 in s.word_embedding_stds, "word_embedding_stds: allowed: 0.02 and others"),
    ("roberta_attention", lambda s: len(s.lengths) <= 3, "lengths: allowed: at most 3, the figure's columns"),
)


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
