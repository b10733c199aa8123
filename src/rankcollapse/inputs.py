"""What a measurement's files and its figure need, asked before any job starts. Torch-free.

A measurement alone runs with less, such as one configuration; the figure drawn from it does not.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankcollapse.architectures import check_architecture, read_architecture
from rankcollapse.checkpoints import MINILM_CONFIG, check_checkpoint
from rankcollapse.config import Measurements, input_files
from rankcollapse.prose import check_prose
from rankcollapse.settings.dong import EncoderDepth, PathLengths, TrainedEncoders
from rankcollapse.settings.encoders import Gpt2Attention, RobertaAttention, RobertaRank, TinybertWidth
from rankcollapse.tokens import check_text, installed, longest_pattern, passages, shortened
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


KIND_NETWORKS = ("pre-LN", "none", "pre-LN + no skip", "pre-LN + no skip + attention alone")
NEEDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("san_depth", lambda s: "mean" in s.inputs, "inputs: allowed: mean, with others or alone"),
    ("attention_step", lambda s: 0 in s.mean_sizes and max(s.mean_sizes) > 0, "mean_sizes: allowed: 0 and another"),
    ("attention_step", lambda s: s.scale_decades[0] <= -3, "scale_decades: allowed: from -3 or below"),
    (
        "trained_encoders",
        lambda s: bool(set(s.variants) - {"SAN + skip", "transformer"}),
        "variants: allowed: one without the attention skip, with others or alone",
    ),
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
    ("noci_similarity", lambda s: s.mlps[0] == "none", "mlps: allowed: none first, with others or alone"),
    ("noci_similarity", lambda s: s.norms[0] == "none", "norms: allowed: none first, with post or alone"),
    ("noci_gradients", lambda s: s.residual_decades >= 3, "residual_decades: allowed: 3 or more, to fit a slope"),
    (
        "remedies_depth",
        lambda s: {"none", "pre-LN", "DeepNorm", "1/sqrt(2L)"} <= {*s.remedies},
        "remedies: allowed: none, pre-LN, DeepNorm, 1/sqrt(2L), with others or alone",
    ),
    (
        "remedies_depth",
        lambda s: set(KIND_NETWORKS) <= {*s.kind_networks},
        f"kind_networks: allowed: {', '.join(KIND_NETWORKS)}, with others or alone",
    ),
    ("skips_depth", lambda s: "pre" in s.placements, "placements: allowed: pre, with others or alone"),
    ("vision_patches", lambda s: "pre-LN" in s.blocks, "blocks: allowed: pre-LN, with others or alone"),
    ("vision_patches", lambda s: len(s.widths) <= 2, "widths: allowed: at most 2, the figure's columns"),
)


def _encoder_depth(settings: EncoderDepth) -> None:
    for name in settings.architectures:
        check_architecture(settings.models, name, tokens=settings.tokens)
    passages(settings.text, settings.texts, settings.tokens, "bert")


def _trained_encoders(settings: TrainedEncoders) -> None:
    installed(MINILM_CONFIG)  # the weights' hash, which takes longer, waits for the job
    check_prose(settings.text, settings.texts, settings.tokens, "bert")
    for name in settings.models:
        check_checkpoint(name, settings.tokens)


def _path_lengths(settings: PathLengths) -> None:
    check_architecture(settings.models, settings.architecture, tokens=settings.tokens)
    kind = read_architecture(settings.models, settings.architecture)["model_type"]
    if kind != "bert":
        raise ConfigError(f"config: measurements.path_lengths.architecture: a {kind}; allowed: a bert")
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
    "trained_encoders": _trained_encoders,
    "path_lengths": _path_lengths,
    "roberta_attention": _roberta_attention,
    "tinybert_width": _tinybert_width,
    "gpt2_attention": _gpt2_attention,
    "roberta_rank": _roberta_rank,
    "vision_patches": lambda settings: check_checkpoint(settings.checkpoint, None) if settings.checkpoint else None,
}
