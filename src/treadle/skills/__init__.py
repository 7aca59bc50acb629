"""Skills: folders with a `SKILL.md` that says how something is done. One format, for the agent and for the host.

`skill_files` is where to begin: where skills are looked for. `skill_reading` reads one. Pure are `skill_yaml` (the
YAML at the beginning of a file) and `skill_list` (the list in a request, with its budget, and mentions). The package
knows nothing of threads and turns, and writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.internal_names import internal_name


def __getattr__(name: str) -> object:
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.skills.skill_files import Skill, SkillPlace, SkillSet, find_skills, is_enabled, known_skills
    from treadle.skills.skill_files import look_for_skills
    from treadle.skills.skill_list import by_name, list_budget, list_for_model, longest, mentioned
    from treadle.skills.skill_reading import read_skill
    from treadle.skills.skill_yaml import Value, YamlError, front_matter, read_yaml, split_document
