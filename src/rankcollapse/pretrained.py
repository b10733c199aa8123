"""Trained encoders in memory: weights from safetensors files only, and texts in a checkpoint's own tokens."""

from collections.abc import Iterable
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from rankcollapse.checkpoints import CheckpointError, first_line
from rankcollapse.tokens import TextError

SAFE = {"local_files_only": True, "trust_remote_code": False}


def load(folder: Path, name: str) -> PreTrainedModel:
    """Return the encoder in ``folder`` in evaluation mode, float32, with eager attention.

    Raises ``CheckpointError`` naming it when its files cannot be read, or lack a weight: the library would draw that
    one at random. A pooler is not needed: no hidden state passes through it.
    """
    logging.disable_progress_bar()
    level = logging.get_verbosity()
    logging.set_verbosity_error()  # it reports weights it has no use for, such as a head's, on several lines
    try:
        encoder, report = AutoModel.from_pretrained(
            folder,
            use_safetensors=True,
            attn_implementation="eager",
            dtype=torch.float32,
            output_loading_info=True,
            **SAFE,
        )
    except Exception as error:  # whatever the library meets in files that are not its own
        raise CheckpointError(f"model {name!r}: cannot be loaded ({first_line(error)})") from None
    finally:
        logging.set_verbosity(level)
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    if missing or report["mismatched_keys"]:
        what = f"no {missing[0]}" if missing else "weights of other shapes than its config.json says"
        raise CheckpointError(f"model {name!r}: {folder} has {what}; allowed: a whole encoder")
    return encoder.eval()


def own_tokens(
    folder: Path, encoder: PreTrainedModel, name: str, texts: Iterable[str], count: int, length: int, where: str
) -> Int[Tensor, "text token"]:
    """Return the first ``count`` texts that fill ``length`` tokens of the checkpoint's own tokenizer, cut to that.

    Special tokens are included. Raises ``CheckpointError`` when the folder has no tokenizer that works, or one of
    another ``encoder``'s, ``TextError`` naming ``where`` the texts come from when too few are long enough.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **SAFE)
        found = tokenizer(list(texts), truncation=True, max_length=length)["input_ids"]
    except Exception as error:
        raise CheckpointError(f"model {name!r}: its tokenizer cannot be loaded ({first_line(error)})") from None
    long = [ids for ids in found if len(ids) == length]
    if len(long) < count:
        raise TextError(f"{where}: has {len(long)} passages of at least {length} tokens of {name}, {count} needed")
    ids = torch.tensor(long[:count])
    last = encoder.config.vocab_size - 1
    if ids.max() > last:
        raise CheckpointError(f"model {name!r}: its tokenizer gives token {ids.max()}, its embeddings end at {last}")
    return ids
