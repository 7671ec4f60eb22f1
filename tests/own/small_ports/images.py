"""Small ports of what computes images: convolutions, pooling, resizing, normalization, and the order of channels and pixels."""

from tests.own.small_ports.pieces import SmallPorts, function, layer, module

PORTS = SmallPorts()
right, wrong = PORTS.right, PORTS.wrong

CONV = "nn.Conv2d(12, 8, 3, 2, 1)"
right("strided", "images", module(CONV), layer("L.ZeroPadding2D(1)>>L.Conv2D(8, 3, 2)"), 8)
wrong("same", "images", module(CONV), layer('L.Conv2D(8, 3, 2, padding="same")'), "SAME pads (0, 1)", 8)
wrong("padded twice", "images", module(CONV), layer("L.ZeroPadding2D(2)>>L.Conv2D(8, 3, 2)"), "pads", 8)
SEPARATE = "nn.Sequential(nn.Conv2d(12, 12, 3, 1, 1, groups=12, bias=False), nn.Conv2d(12, 8, 1))"
right("separable", "images", module(SEPARATE), layer('L.SeparableConv2D(8, 3, padding="same")'), 8)
INNER = SEPARATE.replace("), nn", "), nn.ReLU(), nn")
UNEVEN, BIASED = SEPARATE.replace("3, 1, 1, g", "3, 2, 1, g"), SEPARATE.replace(", bias=False", "")
KERAS_SEPARATE = 'L.SeparableConv2D(8, 3, {}padding="same")'
ACTIVE = "between its two parts, the activation (relu) is left out in TensorFlow"
wrong("active separable", "images", module(INNER), layer(KERAS_SEPARATE.format("")), ACTIVE, 8)
wrong("biased separable", "images", module(BIASED), layer(KERAS_SEPARATE.format("")), "TensorFlow has no bias", 8)
wrong("uneven separable", "images", module(UNEVEN), layer(KERAS_SEPARATE.format("2, ")), "SAME pads (0, 1)", 8)
REFLECTED, PLAIN = 'nn.Conv2d(12, 8, 3, 1, 1, padding_mode="reflect")', 'L.Conv2D(8, 3, padding="same")'
wrong("reflected", "images", module(REFLECTED), layer(PLAIN), "torch pads with a reflection, TensorFlow with zeros", 8)
PIXELS = "O.reshape(O.transpose(O.reshape(h, (-1, 8, 8, 2, 2, 3)), (0, 1, 3, 2, 4, 5)), (-1, 16, 16, 3)) ** 2"
SHUFFLE = "F.pixel_shuffle(h.movedim(-1, 1), 2).movedim(1, -1) ** 2"
wrong("pixels", "images", function(SHUFFLE), function(PIXELS), "", 3)
DILATED = "nn.Conv2d(12, 8, 3, 1, 2, 2)"
wrong("dilation", "images", module(DILATED), layer('L.Conv2D(8, 3, padding="same")'), "dilation", 8)
right("pool", "images", module("nn.MaxPool2d(3, 2)"), layer("L.MaxPooling2D(3, 2)"))
wrong("zero pool", "images", module("nn.MaxPool2d(3, 2, 1)"), layer("L.ZeroPadding2D(1)>>L.MaxPooling2D(3, 2)"), "zero")
wrong("mean pool", "images", module("nn.MaxPool2d(2)"), layer("L.AveragePooling2D(2)"), "pools by the maximum")
COUNTED = "nn.AvgPool2d(3, 2, 1)"
wrong("counted", "images", module(COUNTED), layer('L.AveragePooling2D(3, 2, padding="same")'), "pads")
wrong(
    "global",
    "images",
    function("h.mean((1, 2))"),
    layer("L.GlobalMaxPooling2D()"),
    "by the mean, TensorFlow by the max",
)
UP = 'nn.Upsample(scale_factor=2, mode="bilinear"{})'
WAVE = ">>(lambda h: O.square(h))"
SQUARED = "nn.Sequential({}, T.nn.ReLU(), nn.Conv2d(12, 8, 3))"
KERAS_UP = 'L.UpSampling2D(2, interpolation="{}")>>L.ReLU()>>L.Conv2D(8, 3)'
right("up", "images", module(SQUARED.format(UP.format(""))), layer(KERAS_UP.format("bilinear")), 8)
wrong("nearest", "images", module(SQUARED.format(UP.format(""))), layer(KERAS_UP.format("nearest")), "nearest", 8)
ALIGNED = UP.format(", align_corners=True")
wrong("corners", "images", module(SQUARED.format(ALIGNED)), layer(KERAS_UP.format("bilinear")), "corners", 8)
TRANSPOSED = "nn.ConvTranspose2d(12, 8, 3, 2, 1, 1)"
wrong("transposed", "images", module(TRANSPOSED), layer('L.Conv2DTranspose(8, 3, 2, padding="same")'), "cuts off", 8)
right("norm", "images", module("nn.BatchNorm2d(12)"), layer("L.BatchNormalization(momentum=0.9, epsilon=1e-5)"))
wrong(
    "norm momentum",
    "images",
    module("nn.BatchNorm2d(12)"),
    layer("L.BatchNormalization(epsilon=1e-5)"),
    "momentum=0.99",
)
wrong(
    "norm epsilon",
    "images",
    module("nn.BatchNorm2d(12)"),
    layer("L.BatchNormalization(momentum=0.9)"),
    "epsilon is 1e-05",
)
NORMED = "nn.Sequential(nn.BatchNorm2d(12), nn.ReLU())"
BEFORE = "L.ReLU()>>L.BatchNormalization(momentum=0.9, epsilon=1e-5)"
wrong("relu before", "images", module(NORMED), layer(BEFORE), "TensorFlow applies relu before")
wrong(
    "instance", "images", module("nn.GroupNorm(3, 12)"), layer("L.GroupNormalization(-1, epsilon=1e-5)"), "normalizes"
)
wrong("groups", "images", module("nn.GroupNorm(3, 12)"), layer("L.GroupNormalization(4, epsilon=1e-5)"), "groups")
KERAS_OF_ALL = "L.LayerNormalization(axis=(1, 2, 3), epsilon=1e-5)"
right("norm of all", "images", module("nn.LayerNorm((12, 8, 8))"), layer(KERAS_OF_ALL))
KERAS_OF_SPACE = "L.LayerNormalization(axis=(1, 2))"
wrong("norm of space", "images", module("nn.LayerNorm((8, 8))"), layer(KERAS_OF_SPACE), "epsilon is 1e-05")
JOINED = "O.concatenate([h[..., 4:], h[..., :4]], -1)"
wrong("joined", "images", function("T.cat([h[..., :4], h[..., 4:]], -1)"), function(JOINED), "other order")
SHUFFLED = "O.reshape(O.transpose(O.reshape(h, (-1, 8, 8, 3, 4)), (0, 1, 2, 4, 3)), (-1, 8, 8, 12))"
wrong("shuffled", "images", function("h * 1"), function(SHUFFLED), "interleaves")
wrong(
    "turned",
    "images",
    function("h.flatten(1)"),
    function("O.reshape(O.transpose(h, (0, 2, 1, 3)), (-1, 768))"),
    "interleaves",
    768,
)
GROUPED = "nn.Sequential(nn.Conv2d(12, 8, 3, 2, 1, groups=4), nn.GroupNorm(2, 8, eps=1e-3), nn.ELU())"
KERAS_GROUPED = "L.ZeroPadding2D(1)>>L.Conv2D(8, 3, strides=2, groups=4)>>L.GroupNormalization(2)>>L.ELU()"
right("grouped", "images", module(GROUPED), layer(KERAS_GROUPED), 8)

globals().update(PORTS.in_file())
