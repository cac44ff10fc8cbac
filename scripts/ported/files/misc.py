"""torchvision's blocks of layers, which its other files import."""

from ..file import File, image

FILE = File(
    name="misc",
    source="torchvision.ops.misc",
    edits={"operator": {"scale * input": "torch.mul(scale, input)"}},  # its gradient is a sum
    make=lambda blocks: blocks.SqueezeExcitation(3, 4),
    inputs=(image(8),),
)
