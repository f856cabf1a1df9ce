"""The conformance suite for platform adapters: cases, the ranks that run them, and a pytest plugin."""

from hyper_conformance.case import CASES as CASES
from hyper_conformance.case import MILESTONES as MILESTONES
from hyper_conformance.case import Case as Case
from hyper_conformance.case import case as case
from hyper_conformance.harness import Harness as Harness
from hyper_conformance.harness import Ranks as Ranks
from hyper_conformance.harness import find_harness as find_harness
from hyper_conformance.harness import launch as launch
from hyper_conformance.here import Here as Here
from hyper_conformance.ranks import ProcessRanks as ProcessRanks
from hyper_conformance.ranks import ProcessSetup as ProcessSetup
from hyper_conformance.ranks import RankError as RankError
from hyper_conformance.run import load_cases as load_cases
from hyper_conformance.run import run_case as run_case
