"""What an installed prefixroute must be able to do with numpy alone, from any folder."""

import importlib.util

import numpy as np

import prefixroute as pr

if importlib.util.find_spec("prefixroute._core").origin.startswith(str(__file__).removesuffix("/.ci/smoke.py")):
    raise SystemExit("the smoke test ran on the source tree, not on the installed package")

router = pr.Router(["a", "b"], policy="cache-aware")
prompt = np.arange(4_000, dtype=np.uint32)
with router.route(prompt) as first:
    pass
decision = router.choose(prompt)
if (decision.replica, decision.hit_tokens) != (first.replica, 3_984):
    raise SystemExit(f"the second request must follow the first and hit 3984 tokens, got {decision}")
print(f"prefixroute {pr.__version__} works with numpy {np.__version__}")
