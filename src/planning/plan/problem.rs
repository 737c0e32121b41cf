//! The model: a choice among configurations as an integer linear program.
//!
//! A [`Problem`] has the work of one job, the choices with their coefficients, and the maximum number of parts.
//! [`Problem::program`] turns it into a [`Program`] of variables, rows and an objective, independent of any solver:
//!
//! | row | formula |
//! | --- | --- |
//! | work | Σ r·h = W |
//! | link | h ≤ H·y with H = min(W/r, most hours, (D − u)/ε), which is always tight |
//! | deadline | Σ (ε·h + u·y) + s ≤ D: parts run one after another |
//! | shared | v·y ≤ s for every choice with hours v that count once per plan (spot) |
//! | parts | Σ y ≤ K |
//! | budget | Σ (p·β·h + (p·û + o)·y) ≤ B |
//! | emissions | Σ (g·β·h + g·û·y) ≤ G, with g kilograms of CO2e per hour of running |
//! | blocks | p·β·h + p·û·y ≤ p·T·b and y ≤ b, if each started block of T hours is billed; the cost is then p·T·b + s·h
//! + o·y |
//!
//! with y ∈ {0, 1} (used or not) and h ≥ 0 (useful hours) for each choice, and b ∈ {0, 1, …} (billed blocks) for
//! choices billed by started hours or by whole terms of a contract. The limit on the price per hour is a filter before
//! the model, since parts never overlap. Units are hours, US dollars and samples; `solve` does the scaling.

use std::collections::BTreeMap;

use crate::pricing::begun;

/// Relative difference below which two values are equal.
pub const RELATIVE_TOLERANCE: f64 = 1e-9;

/// Coefficients of one configuration in the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Samples per useful hour (r).
    pub rate: f64,
    /// Hours that count for the deadline per useful hour (ε, or ε^α at high confidence).
    pub hours: f64,
    /// One-time hours that count for the deadline if the choice is used (u).
    pub hours_once: f64,
    /// Hours that count for the deadline once per plan (v; the first losses of spot machines). Only the largest of all
    /// used choices counts.
    pub hours_shared: f64,
    /// Dollars per useful hour (p·β, and s·ε for storing data).
    pub usd: f64,
    /// One-time dollars if the choice is used (p·û + o).
    pub usd_once: f64,
    /// Kilograms of CO2e per useful hour (g·β); 0 if the plan does not involve emissions.
    pub kg: f64,
    /// One-time kilograms of CO2e if the choice is used (g·û); 0 likewise.
    pub kg_once: f64,
    /// Maximum useful hours; infinite without a limit.
    pub most_hours: f64,
    /// Billing by started hours or terms; `None` if only the time used is billed.
    pub blocks: Option<Blocks>,
}

/// Billing in whole blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blocks {
    /// Dollars per block: price per hour times hours of the block (p·T).
    pub usd: f64,
    /// Share of the dollars per useful hour that is not billed in blocks (storing data).
    pub apart: f64,
    /// Share of the one-time dollars that is not billed in blocks (o).
    pub apart_once: f64,
}

impl Blocks {
    /// Dollars for a number of useful hours whose cost without blocks is `exact`.
    fn billed(&self, useful: f64, exact: f64) -> f64 {
        let apart = self.apart * useful + self.apart_once;
        self.usd * begun((exact - apart) / self.usd) + apart
    }
}

impl Choice {
    /// Dollars for a number of useful hours.
    pub(crate) fn cost(&self, useful: f64) -> f64 {
        let exact = self.usd * useful + self.usd_once;
        self.blocks.map_or(exact, |blocks| blocks.billed(useful, exact))
    }

    /// Kilograms of CO2e for a number of useful hours.
    pub fn emits(&self, useful: f64) -> f64 {
        self.kg * useful + self.kg_once
    }

    /// Maximum useful hours with these emissions.
    pub(crate) fn hours_emitting(&self, kilograms: f64) -> f64 {
        linear(kilograms - self.kg_once, self.kg)
    }

    /// Maximum useful hours for this amount of dollars.
    pub(crate) fn hours_for(&self, dollars: f64) -> f64 {
        let Some(Blocks { usd, apart, apart_once }) = self.blocks else {
            return linear(dollars - self.usd_once, self.usd);
        };
        // More blocks leave less for costs outside blocks. The best number of blocks is the last one that is used up,
        // or the next.
        let (left, hourly, once) = (dollars - apart_once, self.usd - apart, self.usd_once - apart_once);
        let used_up = ((left + apart * once / hourly) / (usd * (1.0 + apart / hourly)) * (1.0 + 1e-12)).floor();
        let of = |blocks: f64| {
            let paid = linear((left - blocks * usd).max(0.0), apart);
            if left * (1.0 + 1e-12) < blocks * usd { 0.0 } else { linear(blocks * usd - once, hourly).min(paid) }
        };
        of(used_up).max(of(used_up + 1.0))
    }

    /// Finish and cost of doing all the work with this choice; `None` if it exceeds the maximum hours.
    pub fn whole(&self, work: f64) -> Option<(f64, f64)> {
        let useful = work / self.rate;
        (useful <= self.most_hours * (1.0 + 1e-12))
            .then_some((self.hours * useful + self.hours_once + self.hours_shared, self.cost(useful)))
    }
}

/// Excess over a limit; `None` if the value keeps it within rounding errors, or without a limit.
pub(super) fn over(value: f64, limit: Option<f64>) -> Option<f64> {
    limit.filter(|limit| value > limit * (1.0 + RELATIVE_TOLERANCE)).map(|limit| value - limit)
}

/// Hours that an amount suffices for at this rate per hour; infinite at rate 0.
fn linear(left: f64, hourly: f64) -> f64 {
    match left {
        left if left < 0.0 => 0.0,
        left if hourly > 0.0 => left / hourly,
        _ => f64::INFINITY,
    }
}

/// Choices of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Samples to process (W).
    pub work: f64,
    /// Available choices.
    pub choices: Vec<Choice>,
    /// Maximum number of parts (K).
    pub max_parts: u32,
    /// Maximum kilograms of CO2e of a plan (G); `None` = no limit.
    pub most_kg: Option<f64>,
}

/// Objective of a solve: minimised, except for the work, which is maximised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aim {
    /// Dollars.
    Cost,
    /// Hours that count for the deadline, until all parts end.
    Finish,
    /// Dollars plus this many dollars per hour until the finish.
    Weighted(f64),
    /// Kilograms of CO2e.
    Emissions,
    /// Number of parts.
    Parts,
    /// Samples, up to the requested work.
    Work,
    /// Sum of the excess over deadline and budget, each in its own unit.
    Excess {
        /// Hours per unit of excess.
        hours: f64,
        /// Dollars per unit of excess.
        usd: f64,
    },
}

impl Aim {
    /// Its value for a plan with this finish, cost and emissions.
    pub(super) fn of_plan(self, (finish, cost, kilograms): (f64, f64, f64)) -> f64 {
        match self {
            Self::Emissions => kilograms,
            Self::Finish => finish,
            Self::Weighted(worth) => cost + worth * finish,
            _ => cost,
        }
    }
}

/// Limits of one solve.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limit {
    /// Hours that count for the deadline (D).
    pub deadline: Option<f64>,
    /// Dollars (B).
    pub budget: Option<f64>,
    /// Upper bounds on earlier aims, for lexicographic solves.
    pub ceilings: Vec<(Aim, f64)>,
}

impl Limit {
    /// Whether hours and dollars keep deadline and budget within rounding errors.
    pub(super) fn is_kept(&self, finish: f64, cost: f64) -> bool {
        over(finish, self.deadline).is_none() && over(cost, self.budget).is_none()
    }
}

/// Relation between a row and its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// At most the bound.
    AtMost,
    /// At least the bound.
    AtLeast,
    /// Equal to the bound.
    Equal,
}

/// A variable between 0 and an upper bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Variable {
    /// Upper bound; finite.
    pub upper: f64,
    /// Whether the variable is an integer.
    pub integer: bool,
}

/// A linear expression compared with a bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Variables with coefficients, each variable at most once.
    pub terms: Vec<(usize, f64)>,
    /// Relation to the bound.
    pub relation: Relation,
    /// The bound.
    pub bound: f64,
}

/// An integer linear program to minimise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Program {
    /// Variables.
    pub variables: Vec<Variable>,
    /// Rows.
    pub rows: Vec<Row>,
    /// Objective.
    pub objective: Vec<(usize, f64)>,
}

impl Program {
    /// The same program without integrality; its optimum is a lower bound.
    #[must_use]
    pub fn relaxed(mut self) -> Self {
        for variable in &mut self.variables {
            variable.integer = false;
        }
        self
    }

    pub(super) fn row(&mut self, terms: Vec<(usize, f64)>, relation: Relation, bound: f64) {
        self.rows.push(Row { terms, relation, bound });
    }
}

impl Problem {
    /// The same problem with only these choices.
    #[must_use]
    pub fn only(&self, choices: &[usize]) -> Self {
        Self {
            work: self.work,
            choices: choices.iter().map(|c| self.choices[*c]).collect(),
            max_parts: self.max_parts,
            most_kg: self.most_kg,
        }
    }

    /// Builds the program of one solve. For `n` choices, variable `c` is whether choice `c` is used, and variable `n +
    /// c` its useful hours. Then follow the hours that count once per plan, if any choice has some, and the billed
    /// blocks of choices that are billed in blocks.
    pub fn program(&self, aim: Aim, limit: &Limit) -> Program {
        let n = self.choices.len();
        let elastic = matches!(aim, Aim::Excess { .. });
        let caps: Vec<f64> =
            self.choices.iter().map(|choice| self.cap(choice, limit.deadline.filter(|_| !elastic))).collect();
        let mut program = Program::default();
        program.variables.extend(caps.iter().map(|cap| Variable { upper: f64::from(*cap > 0.0), integer: true }));
        program.variables.extend(caps.iter().map(|cap| Variable { upper: *cap, integer: false }));
        let shared = self.choices.iter().map(|choice| choice.hours_shared).fold(0.0, f64::max);
        if shared > 0.0 {
            program.variables.push(Variable { upper: shared, integer: false });
            for (c, choice) in self.choices.iter().enumerate().filter(|(_, choice)| choice.hours_shared > 0.0) {
                program.row(vec![(c, choice.hours_shared), (2 * n, -1.0)], Relation::AtMost, 0.0);
            }
        }

        for ((c, blocks), billed) in self.blocks() {
            let choice = &self.choices[c];
            let hourly = (choice.usd - blocks.apart) / blocks.usd;
            let once = (choice.usd_once - blocks.apart_once) / blocks.usd;
            let most = if caps[c] > 0.0 { (hourly * caps[c] + once).ceil() + 1.0 } else { 0.0 };
            program.variables.push(Variable { upper: most, integer: true });
            program.row(vec![(n + c, hourly), (c, once), (billed, -1.0)], Relation::AtMost, 0.0);
            // Implied by the row above, but needed because of the solver's rounding: a short use is a tiny share of a
            // long term.
            program.row(vec![(c, 1.0), (billed, -1.0)], Relation::AtMost, 0.0);
        }

        let amount = self.choices.iter().enumerate().map(|(c, choice)| (n + c, choice.rate)).collect();
        let enough = if aim == Aim::Work { Relation::AtMost } else { Relation::Equal };
        program.row(amount, enough, self.work);
        for (c, cap) in caps.iter().enumerate() {
            program.row(vec![(n + c, 1.0), (c, -cap)], Relation::AtMost, 0.0);
        }
        program.row((0..n).map(|c| (c, 1.0)).collect(), Relation::AtMost, f64::from(self.max_parts));

        let (mut excess, slack) = (Vec::new(), program.variables.len());
        if let Aim::Excess { hours, usd } = aim {
            // No excess can be larger than the sum of all choices one after another.
            let most = self.choices.iter().filter_map(|choice| choice.whole(self.work));
            let (finish, cost) = most.fold((0.0, 0.0), |sum, whole| (sum.0 + whole.0, sum.1 + whole.1));
            excess = vec![(slack, 1.0 / hours), (slack + 1, 1.0 / usd)];
            program.variables.push(Variable { upper: finish, integer: false });
            program.variables.push(Variable { upper: cost, integer: false });
        }
        for (kind, bound, slack) in [(Aim::Finish, limit.deadline, slack), (Aim::Cost, limit.budget, slack + 1)] {
            if let Some(bound) = bound {
                let mut terms = self.terms(kind);
                if elastic {
                    terms.push((slack, -1.0));
                }
                program.row(terms, Relation::AtMost, bound);
            }
        }
        if let Some(most) = self.most_kg {
            program.row(self.terms(Aim::Emissions), Relation::AtMost, most);
        }
        for (kind, ceiling) in &limit.ceilings {
            program.row(self.terms(*kind), Relation::AtMost, *ceiling);
        }
        program.objective = if elastic { excess } else { self.terms(aim) };
        program
    }

    /// Value of an aim for these useful hours per choice.
    pub fn value(&self, aim: Aim, hours: &[(usize, f64)]) -> f64 {
        let sum = |of: fn(&Choice, f64) -> f64| hours.iter().map(|(c, h)| of(&self.choices[*c], *h)).sum::<f64>();
        match aim {
            Aim::Cost => sum(Choice::cost),
            Aim::Finish => {
                let shared = hours.iter().map(|(c, _)| self.choices[*c].hours_shared).fold(0.0, f64::max);
                sum(|choice, h| choice.hours * h + choice.hours_once) + shared
            }
            Aim::Weighted(worth) => self.value(Aim::Cost, hours) + worth * self.value(Aim::Finish, hours),
            Aim::Emissions => sum(Choice::emits),
            Aim::Parts => hours.len() as f64,
            Aim::Work => sum(|choice, h| choice.rate * h),
            Aim::Excess { .. } => f64::NAN,
        }
    }

    /// Whether these useful hours per choice keep the limit on emissions.
    pub(super) fn keeps_emissions(&self, hours: &[(usize, f64)]) -> bool {
        self.most_kg.is_none_or(|most| self.value(Aim::Emissions, hours) <= most * (1.0 + RELATIVE_TOLERANCE))
    }

    /// Finish and cost of a choice that does all the work; `None` if it cannot, or exceeds the limit on emissions.
    pub(super) fn whole(&self, choice: usize) -> Option<(f64, f64)> {
        let own = &self.choices[choice];
        own.whole(self.work).filter(|_| self.keeps_emissions(&[(choice, self.work / own.rate)]))
    }

    /// Choices that are not dominated. A dominated choice can be replaced in any plan by others that are no slower, no
    /// more expensive and emit no more, per sample and once. Either one such choice can do all the work; or there are
    /// as many of them as a plan has parts, each with at least the same capacity, so that at least one is not yet in
    /// the plan.
    ///
    /// Replacing a choice does not worsen any row, so the optimum stays the same. Of equal choices, the first is kept.
    pub fn undominated(&self) -> Vec<usize> {
        let each = |choice: &Choice| {
            let hourly = [choice.usd, choice.hours, choice.kg].map(|hourly| hourly / choice.rate);
            [hourly[0], hourly[1], choice.usd_once, choice.hours_once, hourly[2], choice.kg_once]
        };
        let most = |choice: &Choice| choice.most_hours * choice.rate;
        let mut order: Vec<usize> = (0..self.choices.len()).collect();
        order.sort_by(|a, b| {
            let (a, b) = (&self.choices[*a], &self.choices[*b]);
            let mut pairs =
                each(a).into_iter().chain([a.hours_shared]).zip(each(b).into_iter().chain([b.hours_shared]));
            let differing = pairs.find_map(|(a, b)| Some(a.total_cmp(&b)).filter(|order| order.is_ne()));
            differing.unwrap_or_else(|| most(b).total_cmp(&most(a)))
        });
        let mut kept: Vec<usize> = Vec::new();
        for c in order {
            let candidate = &self.choices[c];
            let dominates = |keeper: &&Choice| {
                // Billing in blocks adds at most one block.
                let block = keeper.blocks.map_or(0.0, |blocks| blocks.usd);
                let dearest = Choice { usd_once: keeper.usd_once + block, ..**keeper };
                each(&dearest).iter().zip(each(candidate)).all(|(keeper, candidate)| *keeper <= candidate)
                    && (keeper.hours_shared <= candidate.hours_shared
                        || keeper.hours_once + keeper.hours_shared <= candidate.hours_once)
            };
            let mut as_much = 0;
            let alone = kept.iter().map(|k| &self.choices[*k]).filter(dominates).any(|keeper| {
                as_much += u32::from(most(keeper) >= most(candidate));
                most(keeper) >= self.work || as_much >= self.max_parts
            });
            if !alone {
                kept.push(c);
            }
        }
        kept.sort_unstable();
        kept
    }

    /// Maximum useful hours of a choice: all the work, its own limit, or the deadline.
    fn cap(&self, choice: &Choice, deadline: Option<f64>) -> f64 {
        let within = deadline.map_or(f64::INFINITY, |d| (d - choice.hours_once - choice.hours_shared) / choice.hours);
        (self.work / choice.rate).min(choice.most_hours).min(within).max(0.0)
    }

    fn has_shared(&self) -> bool {
        self.choices.iter().any(|choice| choice.hours_shared > 0.0)
    }

    /// Choices that are billed in blocks, each with the index of its variable for billed blocks.
    fn blocks(&self) -> impl Iterator<Item = ((usize, Blocks), usize)> + '_ {
        let of_choices = self.choices.iter().enumerate().filter_map(|(c, choice)| Some((c, choice.blocks?)));
        of_choices.zip(2 * self.choices.len() + usize::from(self.has_shared())..)
    }

    fn terms(&self, aim: Aim) -> Vec<(usize, f64)> {
        let n = self.choices.len();
        let both = |of: fn(&Choice) -> (f64, f64)| {
            self.choices
                .iter()
                .enumerate()
                .flat_map(|(c, choice)| {
                    let (hourly, once) = of(choice);
                    [(n + c, hourly), (c, once)]
                })
                .collect::<Vec<_>>()
        };
        match aim {
            Aim::Cost => {
                let mut terms = both(|choice| match choice.blocks {
                    Some(blocks) => (blocks.apart, blocks.apart_once),
                    None => (choice.usd, choice.usd_once),
                });
                terms.extend(self.blocks().map(|((_, blocks), billed)| (billed, blocks.usd)));
                terms
            }
            Aim::Finish => {
                let mut terms = both(|choice| (choice.hours, choice.hours_once));
                if self.has_shared() {
                    terms.push((2 * n, 1.0));
                }
                terms
            }
            Aim::Weighted(worth) => {
                let mut terms: BTreeMap<usize, f64> = self.terms(Aim::Cost).into_iter().collect();
                for (variable, hours) in self.terms(Aim::Finish) {
                    *terms.entry(variable).or_default() += worth * hours;
                }
                terms.into_iter().collect()
            }
            Aim::Emissions => both(|choice| (choice.kg, choice.kg_once)),
            Aim::Parts => (0..n).map(|c| (c, 1.0)).collect(),
            // Negated, because a program is minimised.
            Aim::Work => self.choices.iter().enumerate().map(|(c, choice)| (n + c, -choice.rate)).collect(),
            Aim::Excess { .. } => Vec::new(),
        }
    }
}
