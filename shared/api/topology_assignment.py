"""The compact form in which a Workload's status says how many of its pods run in which topology domain.

Domains are listed in slices; inside a slice each level's values share a prefix and a suffix, or one value.
This module is the shape only; choosing and reading an encoding belongs to topology placement.
"""

from typing import Annotated

from shared.api.schema_hints import ApiStruct, Positive, atomic_list, rules, schema


class TopologyLevelIndividual(ApiStruct, frozen=True, kw_only=True):
    """One value per domain: prefix + root + suffix."""

    prefix: Annotated[str, schema("Leads every value.", maxLength=63)] = ""
    suffix: Annotated[str, schema("Ends every value.", maxLength=63)] = ""
    roots: Annotated[
        tuple[Annotated[str, schema(maxLength=63)], ...],
        atomic_list("The middle parts, one per domain.", minItems=1, maxItems=100000),
    ]


class TopologyLevelValues(ApiStruct, frozen=True, kw_only=True):
    """Values of one level; either universal or individual."""

    universal: Annotated[str | None, schema("The value of all domains of the slice.", minLength=1, maxLength=63)] = None
    individual: TopologyLevelIndividual | None = None


class TopologyPodCounts(ApiStruct, frozen=True, kw_only=True):
    """Pods per domain; either universal or individual."""

    universal: Annotated[int | None, schema("Pods in every domain of the slice.", format="int32", minimum=1)] = None
    individual: Annotated[
        tuple[Positive, ...] | None, atomic_list("Pods of each domain.", minItems=1, maxItems=100000)
    ] = None


class TopologySlice(ApiStruct, frozen=True, kw_only=True):
    """Some domains and the pods in them."""

    domain_count: Annotated[Positive, schema("How many domains this slice has.")]
    values_per_level: Annotated[
        tuple[
            Annotated[
                TopologyLevelValues,
                rules(("has(self.universal) != has(self.individual)", "exactly one of universal and individual")),
            ],
            ...,
        ],
        atomic_list("Values of the domains, one entry per level.", minItems=1, maxItems=16),
    ]
    pod_counts: Annotated[
        TopologyPodCounts,
        rules(("has(self.universal) != has(self.individual)", "exactly one of universal and individual")),
    ]


class TopologyAssignment(ApiStruct, frozen=True, kw_only=True):
    """Where the pods of a pod set go."""

    levels: Annotated[
        tuple[Annotated[str, schema(maxLength=317)], ...],
        atomic_list("Node labels of the levels listed, widest first.", minItems=1, maxItems=16),
    ]
    slices: Annotated[
        tuple[
            Annotated[
                TopologySlice,
                rules(
                    (
                        "self.valuesPerLevel.all(v, !has(v.individual) || size(v.individual.roots) == self.domainCount)",
                        "individual values must be as many as domainCount",
                        ".valuesPerLevel",
                    ),
                    (
                        "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
                        "individual podCounts must be as many as domainCount",
                        ".podCounts.individual",
                    ),
                ),
            ],
            ...,
        ],
        atomic_list("The domains, in slices.", maxItems=1000),
    ]


TopologyAssignmentField = Annotated[
    TopologyAssignment,
    rules(
        (
            "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
            "valuesPerLevel must be as many as levels",
            ".slices",
        )
    ),
]
