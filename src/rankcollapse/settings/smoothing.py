"""Settings of over-smoothing: graphs, and vision transformers."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rankcollapse.settings.types import Depths, Positive, Positives, Size, Sizes, Width, settings

GraphName = Literal["karate club", "Erdos-Renyi", "Les Miserables", "grid", "block model"]
GraphModel = Literal["gcn", "gcn_symmetric", "gat", "transformer"]
Probability = Annotated[float, Field(gt=0, le=1)]


@settings
class GraphSmoothing:
    """Graph networks and dense attention by depth on five graphs, with one remedy at a time (over-smoothing)."""

    graphs: Annotated[tuple[GraphName, ...], Field(min_length=1)]  # the graphs
    random_nodes: Annotated[int, Field(ge=4, le=5000)]  # nodes of the Erdos-Renyi graph
    edge_probability: Probability  # of each of its pairs
    grid_side: Annotated[int, Field(ge=3, le=70)]  # the grid has its square of nodes
    blocks: Annotated[int, Field(ge=2)]  # blocks of the stochastic block model
    block_nodes: Annotated[int, Field(ge=3)]  # nodes of each
    inside: Probability  # probability of an edge within a block
    between: Probability  # and between two
    width: Width  # d, channels
    layers: Annotated[int, Field(ge=4)]  # L
    runs: Size  # draws of features and weights
    gains: Positives  # factors of the attention logits, for attention without remedies; 1 must be one
    encodings: Annotated[int, Field(ge=1, le=8)]  # Laplacian eigenvectors added to the features
    distance_slope: Positive  # logit lost per edge of distance
    scaled_depths: Depths  # depths of networks with skip whose branches are divided by the root of the depth
    shown_layers: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]  # drawn on the first graph

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if 1 not in self.gains:
            raise ValueError(f"gains: {self.gains}; 1 must be one of them")
        missing = {self.layers, self.layers // 2} - set(self.scaled_depths)
        if missing:
            raise ValueError(
                f"scaled_depths: {self.scaled_depths}; layers and its half, {sorted(missing)}, are missing"
            )
        if max(self.shown_layers) > self.layers:
            raise ValueError(f"shown_layers: {max(self.shown_layers)}; at most layers = {self.layers}")
        if self.encodings >= min(self.random_nodes, self.grid_side**2, self.blocks * self.block_nodes):
            raise ValueError(f"encodings: {self.encodings}; fewer than the nodes of every graph")
        return self


VisionInit = Literal["timm", "xavier"]
VisionBlock = Literal["pre-LN", "post-LN", "no LN", "no skip", "scaled"]


@settings
class VisionPatches:
    """Vision transformers by depth on real pictures: how alike their patches become (over-smoothing)."""

    widths: Sizes  # d of each size of ViT; 192 is ViT-Ti, 384 ViT-S
    head_width: Width  # channels of a head; must divide every width
    mlp_ratio: Size  # hidden channels of the MLP, in widths
    layers: Annotated[int, Field(ge=2)]  # L
    picture_size: Size  # pixels of a crop's side, after resizing
    patch: Size  # pixels of a patch's side; must divide picture_size
    runs: Size  # draws of weights, each with a crop of each picture
    inits: Annotated[tuple[VisionInit, ...], Field(min_length=1)]  # weight inits of embedding and blocks
    blocks: Annotated[tuple[VisionBlock, ...], Field(min_length=1)]  # kinds of block
    scaled_depths: Sizes  # depths of the scaled blocks, whose branches are divided by sqrt(2 depth)
    input_scales: Positives  # factors of the pictures, for pre-LN in the first size; 1 must be one
    position_std: Positive  # standard deviation of the position embeddings and the class token
    marked_patch: Annotated[int, Field(ge=0)]  # the one that others are compared with, counted along rows
    shown_layers: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]  # drawn on the pictures
    checkpoint: str  # a trained ViT, a local folder or a name on the Hugging Face hub; empty: none

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if odd := [width for width in self.widths if width % self.head_width]:
            raise ValueError(f"widths: {odd[0]}; must be a multiple of head_width = {self.head_width}")
        if self.picture_size % self.patch or self.picture_size < 2 * self.patch:
            raise ValueError(
                f"picture_size: {self.picture_size}; must be a multiple of patch = {self.patch}, not the first"
            )
        if self.marked_patch >= (self.picture_size // self.patch) ** 2:
            raise ValueError(f"marked_patch: {self.marked_patch}; below the number of patches")
        if 1 not in self.input_scales:
            raise ValueError(f"input_scales: {self.input_scales}; 1 must be one of them")
        if self.layers not in self.scaled_depths or max(self.scaled_depths) > self.layers:
            raise ValueError(f"scaled_depths: {self.scaled_depths}; layers = {self.layers} must be the largest")
        if max(self.shown_layers) > self.layers:
            raise ValueError(f"shown_layers: {max(self.shown_layers)}; at most layers = {self.layers}")
        return self
