"""AsyncGRPO's scoring of two groups of two completions, with the rewards of a service: ``-m tests.trl_groups URL``.

The last line is JSON: text and reward of each completion, by group.
"""

import asyncio
import json
import pickle
import sys
from types import SimpleNamespace
from typing import Any

from accelerate.state import PartialState
from trl.experimental.async_grpo.async_rollout_worker import RolloutGroup, _AsyncRolloutLoop

from rubricsvc import AsyncClient
from trainer.integrations.trl import AsyncRubricReward


def group(number: int, question: str) -> RolloutGroup:
    sequence = SimpleNamespace(input_ids=[1, 2], completion_mask=[0, 1], old_log_probs=[0.0, 0.0])
    return RolloutGroup(
        prompts=[[{"role": "user", "content": question}]] * 2,
        reward_kwargs={"rubric": ["clear@1"] * 2},
        completions=[[{"role": "assistant", "content": f"{question} {n}"}] for n in range(2)],
        completions_ids=[[1], [2]],
        completions_sequences=[[sequence]] * 2,
        tool_call_counts=[0, 0],
        tool_failure_counts=[0, 0],
        model_version=0,
        group_id=number,
        env_rewards=[],
        rollout_rewards=[],
    )


async def main(url: str) -> None:
    reward = pickle.loads(pickle.dumps(AsyncRubricReward(AsyncClient(url), "scripted")))
    loop: Any = SimpleNamespace(
        reward_funcs=[reward], reward_func_names=[reward.__name__], _env_reward_types=[], _provides_rollout_reward=False
    )
    groups = [group(number, question) for number, question in enumerate(("Why?", "How?"))]
    scored = await asyncio.gather(*(_AsyncRolloutLoop._score_group(loop, one) for one in groups))
    rows = [[(sample.completion[0]["content"], sample.metrics["rewards/rubric"]) for sample in one] for one in scored]
    print(json.dumps(rows))


if __name__ == "__main__":
    PartialState()  # which TRL's worker makes in its process
    asyncio.run(main(sys.argv[1]))
