"""Models as their papers describe them, for predictions: nobody trains them here."""

from samestep.common.workload.data.synthetic import SyntheticSpec
from samestep.common.workload.models.decoder import DecoderSpec
from samestep.common.workload.optimizers.table import DEFAULT
from samestep.common.workload.workload import Workload

_RATES = {DEFAULT: 2**-13}
"""It decides nothing that is predicted."""


def _published(name: str, model: DecoderSpec, batch_size: int, source: str) -> Workload:
    return Workload(name, model, SyntheticSpec(), "bits_per_token", _RATES, batch_size, 1, source)


PUBLISHED = {
    workload.name: workload
    for workload in (
        _published(
            "zero-7.5b",
            DecoderSpec("gpt", 23, 40, 40, 5120, 4 * 5120, 1024, 50257),
            512,
            "Rajbhandari et al., arXiv 1910.02054, figure 1 and table 1, which give 7.5 billion parameters and no shape; this "
            "one has as many, with GPT-2's vocabulary and context",
        ),
        _published(
            "megatron-7.5b",
            DecoderSpec("gpt", 36, 32, 32, 4096, 4 * 4096, 2048, 51200),
            512,
            "Narayanan et al., arXiv 2104.04473, table 1, row 3",
        ),
        _published(
            "llama-65b",
            DecoderSpec("llama", 80, 64, 64, 8192, 22016, 2048, 32000),
            2048,
            "Touvron et al., arXiv 2302.13971, table 2: batches of 4 million tokens; the mlp is 2/3 of 4 x 8192 units, rounded "
            "up to a multiple of 256",
        ),
        _published(
            "llama3-8b",
            DecoderSpec("llama", 32, 32, 8, 4096, 14336, 8192, 128000),
            512,
            "Grattafiori et al., arXiv 2407.21783, table 3; batches of 4 million tokens",
        ),
        _published(
            "llama3-70b",
            DecoderSpec("llama", 80, 64, 8, 8192, 28672, 8192, 128000),
            512,
            "Grattafiori et al., arXiv 2407.21783, table 3; batches of 4 million tokens",
        ),
        _published(
            "llama3-405b",
            DecoderSpec("llama", 126, 128, 8, 16384, 53248, 8192, 128000),
            2048,
            "Grattafiori et al., arXiv 2407.21783, table 3; batches of 16 million tokens, as in table 4",
        ),
        _published(
            "gpt3-175b",
            DecoderSpec("gpt", 96, 96, 96, 12288, 4 * 12288, 2048, 51200),
            1536,
            "Brown et al., arXiv 2005.14165, table 2.1; its vocabulary of 50257 padded to 51200, as in Narayanan et al., arXiv "
            "2104.04473, section 5",
        ),
        _published(
            "mt-nlg-530b",
            DecoderSpec("gpt", 105, 128, 128, 20480, 4 * 20480, 2048, 51200),
            1920,
            "Smith et al., arXiv 2201.11990, section 3.2; its vocabulary is not published, and taken to be that of gpt3-175b",
        ),
        _published(
            "mixtral-8x7b",
            DecoderSpec("llama", 32, 32, 8, 4096, 14336, 32768, 32000, routed_experts=8, top_k=2, expert_hidden=14336),
            128,
            "Jiang et al., arXiv 2401.04088, table 1 (46.7 billion parameters, of which a token meets 12.9: Mistral AI, "
            "mistral.ai/news/mixtral-of-experts); its batch is not published, and taken to be of 4 million tokens",
        ),
        _published(
            "deepseek-v3",
            DecoderSpec(
                "llama",
                layers=61,
                heads=128,
                key_heads=128,
                width=7168,
                hidden=18432,
                context=4096,
                vocabulary=129280,
                head_width=128,
                routed_experts=256,
                top_k=8,
                expert_hidden=2048,
                shared_experts=1,
                dense_layers=3,
                query_rank=1536,
                key_rank=512,
                rotary_width=64,
            ),
            15360,
            "DeepSeek-AI, arXiv 2412.19437, section 4.2 (671 billion parameters, of which a token meets 37, or 36.6 without the "
            "table of tokens), without its module for the token after the next; the dense mlp and the vocabulary from "
            "inference/configs/config_671B.json of deepseek-ai/DeepSeek-V3; batches of 15,360, as from 469 billion tokens on",
        ),
        _published(
            "qwen3-30b-a3b",
            DecoderSpec(
                "llama",
                48,
                32,
                4,
                2048,
                6144,
                4096,
                151936,
                head_width=128,
                routed_experts=128,
                top_k=8,
                expert_hidden=768,
            ),
            1024,
            "Yang et al., arXiv 2505.09388, table 2, and section 3.2 (4,096 tokens a sequence); 30.5 billion parameters, of "
            "which a token meets 3.3, as its model card says; widths and vocabulary from torchtitan/models/qwen3/__init__.py of "
            "pytorch/torchtitan; its batch is not published, and taken to be of 4 million tokens",
        ),
        _published(
            "qwen3-235b-a22b",
            DecoderSpec(
                "llama",
                94,
                64,
                4,
                4096,
                12288,
                4096,
                151936,
                head_width=128,
                routed_experts=128,
                top_k=8,
                expert_hidden=1536,
            ),
            1024,
            "Yang et al., arXiv 2505.09388, table 2, sections 1 (235 billion parameters, of which a token meets 22) and 3.2; "
            "widths and vocabulary from torchtitan/models/qwen3/__init__.py of pytorch/torchtitan; its batch is not published, "
            "and taken to be of 4 million tokens",
        ),
        _published(
            "megatron-1t",
            DecoderSpec("gpt", 128, 160, 160, 25600, 4 * 25600, 2048, 51200),
            3072,
            "Narayanan et al., arXiv 2104.04473, table 1, row 10",
        ),
    )
}
