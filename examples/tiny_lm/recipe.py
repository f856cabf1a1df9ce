"""What both frameworks train with: the tensor-parallel plan by module name, and the learning rate."""

import math

from hyper_parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    Replicate,
    RowwiseParallel,
    SequenceParallel,
    Shard,
)


def sequence_parallel_plan() -> dict[str, ParallelStyle]:
    """Returns the tensor-parallel plan of a Qwen3, with sequence parallelism.

    Between the blocks the (B, S, H) activations are split along the sequence, dim 1. Attention and MLP gather
    them at their entry. Their first projections are split by output features, in attention these are heads;
    their last one by input features, so that it yields summands: one reduce-scatter adds them up and splits
    the sum along the sequence again. Embedding, head and loss are split by vocabulary.
    """
    whole, by_sequence, by_vocabulary = Replicate(), Shard(1), Shard(-1)
    heads_dim = 2  # of the (B, S, n, d) queries and keys in q_norm and k_norm
    layer = {
        "input_layernorm": SequenceParallel(),
        "self_attn": PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": by_sequence},
            desired_input_kwarg_layouts={"hidden_states": whole},
        ),
        "self_attn.q_proj": ColwiseParallel(),
        "self_attn.k_proj": ColwiseParallel(),
        "self_attn.v_proj": ColwiseParallel(),
        "self_attn.q_norm": SequenceParallel(sequence_dim=heads_dim, use_local_output=True),
        "self_attn.k_norm": SequenceParallel(sequence_dim=heads_dim, use_local_output=True),
        "self_attn.o_proj": RowwiseParallel(output_layouts=by_sequence, use_local_output=False),
        "post_attention_layernorm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(by_sequence,), desired_input_layouts=(whole,)),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(output_layouts=by_sequence, use_local_output=False),
    }
    embedding = RowwiseParallel(input_layouts=whole, output_layouts=by_sequence, use_local_output=False)
    head = ColwiseParallel(input_layouts=by_sequence, output_layouts=by_vocabulary, use_local_output=False)
    return {
        "model.embed_tokens": embedding,
        **{f"model.layers.*.{name}": style for name, style in layer.items()},
        "model.norm": SequenceParallel(),
        "lm_head": head,
    }


def learning_rate_factor(step: int, steps: int) -> float:
    """Rises over the first tenth of the steps, and falls along a cosine.

    After a sudden start, training would amplify rounding differences some ten thousand times more.
    """
    return min(1.0, (step + 1) / max(1, steps // 10)) * 0.5 * (1 + math.cos(math.pi * step / steps))
