"""Every format of published runs that can be imported."""

from __future__ import annotations

from collections.abc import Mapping

from certify_assets.corpora.formats.agent_reward_bench import AGENT_REWARD_BENCH
from certify_assets.corpora.formats.agentclinic import AGENTCLINIC
from certify_assets.corpora.formats.autocoderover import AUTOCODEROVER
from certify_assets.corpora.formats.base import Adapter
from certify_assets.corpora.formats.browsergym import BROWSERGYM
from certify_assets.corpora.formats.harbor import HARBOR
from certify_assets.corpora.formats.inspect import INSPECT
from certify_assets.corpora.formats.intercode import INTERCODE
from certify_assets.corpora.formats.miniwob_demos import MINIWOB_DEMOS
from certify_assets.corpora.formats.openhands import OPENHANDS
from certify_assets.corpora.formats.swe_agent import MULTI_SWE_BENCH, SWE_AGENT
from certify_assets.corpora.formats.swe_rebench import SWE_REBENCH
from certify_assets.corpora.formats.table import TABLE
from certify_assets.corpora.formats.tau2 import TAU2
from certify_assets.corpora.formats.taubench import TAUBENCH_V1
from certify_assets.corpora.formats.terminal_bench import TERMINAL_BENCH

__all__ = ["ADAPTERS"]

# a new format is a module of its own and one name here
ADAPTERS: Mapping[str, Adapter] = {
    adapter.name: adapter
    for adapter in (
        AGENTCLINIC,
        AGENT_REWARD_BENCH,
        AUTOCODEROVER,
        BROWSERGYM,
        HARBOR,
        INSPECT,
        INTERCODE,
        MINIWOB_DEMOS,
        OPENHANDS,
        MULTI_SWE_BENCH,
        SWE_AGENT,
        SWE_REBENCH,
        TABLE,
        TAU2,
        TAUBENCH_V1,
        TERMINAL_BENCH,
    )
}
