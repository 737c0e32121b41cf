//! The model: choices of configurations as an integer linear program, in our own words.
//!
//! A [`Problem`] is what planner note B2 calls Level 1 for one job: the work, the choices
//! with their coefficients and the most parts. [`Problem::program`] writes it down as a
//! [`Program`] — variables, rows and an objective, independent of any solver:
//!
//! | row | formula |
//! | --- | --- |
//! | work | Σ r·h = W |
//! | link | h ≤ H·y with H = min(W/r, most hours, (D − u)/ε), never a loose constant |
//! | deadline | Σ (ε·h + u·y) + s ≤ D: parts run one after another |
//! | shared | v·y ≤ s for every choice with hours v that count once a plan (spot) |
//! | parts | Σ y ≤ K |
//! | budget | Σ (p·β·h + (p·û + o)·y) ≤ B |
//! | emissions | Σ (g·β·h + g·û·y) ≤ G, with g kilograms of CO2e an hour of running |
//! | blocks | p·β·h + p·û·y ≤ p·T·b and y ≤ b, where every block of T hours begun is billed: p·T·b + s·h + o·y is its cost then |
//!
//! with y ∈ {0, 1} (used or not) and h ≥ 0 (useful hours) for every choice, and b ∈ {0, 1, …}
//! (blocks billed) for those that are billed by whole hours, or by whole terms of a contract. The cap on the hourly price is a
//! filter before the model, since parts never overlap. Units: hours, US dollars and samples;
//! scaling for the solver is `solve`'s own business.

use std::collections::BTreeMap;

use super::search::SAME;
use crate::pricing::begun;

/// The numbers of one configuration in the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Samples in one useful hour (r).
    pub rate: f64,
    /// Hours on the deadline's clock for one useful hour (ε, or ε^α at high confidence).
    pub hours: f64,
    /// Hours on the deadline's clock once, if used at all (u).
    pub hours_once: f64,
    /// Hours on the deadline's clock once a plan, for all choices with such hours together: the most
    /// of them counts (v; the first losses of spot machines).
    pub hours_shared: f64,
    /// Dollars for one useful hour (p·β, and s·ε for keeping data).
    pub usd: f64,
    /// Dollars once, if used at all (p·û + o).
    pub usd_once: f64,
    /// Kilograms of CO2e for one useful hour (g·β); 0 where the plan does not ask for emissions.
    pub kg: f64,
    /// Kilograms of CO2e once, if used at all (g·û); likewise.
    pub kg_once: f64,
    /// Most useful hours; infinite where nothing limits them.
    pub most_hours: f64,
    /// Of what is billed by hours or terms begun; `None` where the time used is billed.
    pub blocks: Option<Blocks>,
}

/// What is billed in whole blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blocks {
    /// Dollars of a block: the price of an hour times its hours (p·T).
    pub usd: f64,
    /// Of the dollars of a useful hour, those that are not billed in blocks (keeping data).
    pub apart: f64,
    /// Of the dollars once, those that are not billed in blocks (o).
    pub apart_once: f64,
}

impl Blocks {
    /// Dollars for so many useful hours that would cost `exact`, were they billed to the second.
    fn billed(&self, useful: f64, exact: f64) -> f64 {
        let apart = self.apart * useful + self.apart_once;
        self.usd * begun((exact - apart) / self.usd) + apart
    }
}

impl Choice {
    /// Dollars for so many useful hours.
    pub fn cost(&self, useful: f64) -> f64 {
        let exact = self.usd * useful + self.usd_once;
        self.blocks.map_or(exact, |blocks| blocks.billed(useful, exact))
    }

    /// Kilograms of CO2e for so many useful hours.
    pub fn emits(&self, useful: f64) -> f64 {
        self.kg * useful + self.kg_once
    }

    /// Most useful hours that emit so many kilograms of CO2e.
    pub(crate) fn hours_emitting(&self, kilograms: f64) -> f64 {
        linear(kilograms - self.kg_once, self.kg)
    }

    /// Most useful hours that so many dollars pay for.
    pub(crate) fn hours_for(&self, dollars: f64) -> f64 {
        let Some(Blocks { usd, apart, apart_once }) = self.blocks else {
            return linear(dollars - self.usd_once, self.usd);
        };
        // More blocks leave less for what is paid apart: the best number of them is the last that
        // is used up, or the next, which is not.
        let (left, hourly, once) = (dollars - apart_once, self.usd - apart, self.usd_once - apart_once);
        let used_up = ((left + apart * once / hourly) / (usd * (1.0 + apart / hourly)) * (1.0 + 1e-12)).floor();
        let of = |blocks: f64| {
            let paid = linear((left - blocks * usd).max(0.0), apart);
            if left * (1.0 + 1e-12) < blocks * usd { 0.0 } else { linear(blocks * usd - once, hourly).min(paid) }
        };
        of(used_up).max(of(used_up + 1.0))
    }

    /// Finish and cost when this choice alone does all the work; `None` where it cannot.
    pub fn whole(&self, work: f64) -> Option<(f64, f64)> {
        let useful = work / self.rate;
        (useful <= self.most_hours * (1.0 + 1e-12))
            .then_some((self.hours * useful + self.hours_once + self.hours_shared, self.cost(useful)))
    }
}

/// Hours that are left where each takes so much of what is left.
fn linear(left: f64, hourly: f64) -> f64 {
    match left {
        left if left < 0.0 => 0.0,
        left if hourly > 0.0 => left / hourly,
        _ => f64::INFINITY,
    }
}

/// One job's choices.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Samples to be processed (W).
    pub work: f64,
    /// What may be used.
    pub choices: Vec<Choice>,
    /// Most parts of a plan (K).
    pub max_parts: u32,
    /// Most kilograms of CO2e of a plan (G); `None` = no limit.
    pub most_kg: Option<f64>,
}

/// What a solve minimises (or, for the work, maximises).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aim {
    /// Dollars.
    Cost,
    /// Hours until all parts are done, on the deadline's clock.
    Finish,
    /// Dollars plus so many dollars an hour until the finish.
    Weighted(f64),
    /// Kilograms of CO2e.
    Emissions,
    /// Parts.
    Parts,
    /// As many samples as possible, up to the work wanted.
    Work,
    /// How far deadline and budget are exceeded together, each in units of its own.
    Excess {
        /// Hours that count as one.
        hours: f64,
        /// Dollars that count as one.
        usd: f64,
    },
}

/// One solve: the aim and the limits of this time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limit {
    /// Hours on the deadline's clock (D).
    pub deadline: Option<f64>,
    /// Dollars (B).
    pub budget: Option<f64>,
    /// Values of earlier aims that must not be exceeded (lexicographic solves, B4).
    pub ceilings: Vec<(Aim, f64)>,
}

/// How a row compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// At most the bound.
    AtMost,
    /// At least the bound.
    AtLeast,
    /// The bound.
    Equal,
}

/// A variable between 0 and a bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Variable {
    /// Largest value; finite.
    pub upper: f64,
    /// Whether only whole numbers are allowed.
    pub integer: bool,
}

/// A sum of variables compared with a bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Variable and coefficient, each variable at most once.
    pub terms: Vec<(usize, f64)>,
    /// How it compares.
    pub relation: Relation,
    /// The bound.
    pub bound: f64,
}

/// An integer linear program, to be minimised.
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
    /// The same without integrality: its optimum bounds the program's.
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
    /// The same with these choices only.
    #[must_use]
    pub fn only(&self, choices: &[usize]) -> Self {
        Self {
            work: self.work,
            choices: choices.iter().map(|c| self.choices[*c]).collect(),
            max_parts: self.max_parts,
            most_kg: self.most_kg,
        }
    }

    /// The model of one solve. Of `n` choices, variable `c` is whether choice `c` is used
    /// and variable `n + c` its useful hours; then, where any has hours that count once a plan,
    /// these; then the blocks billed of choices that are billed by whole ones.
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
            // Follows from the row above, but for the rounding of a solver: of a long term a short
            // use is next to nothing.
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
            // Nobody needs to exceed a limit by more than everything in sequence takes.
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

    /// The value of an aim at these useful hours by choice.
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

    /// Whether so many useful hours by choice emit no more than allowed.
    pub(super) fn keeps_emissions(&self, hours: &[(usize, f64)]) -> bool {
        self.most_kg.is_none_or(|most| self.value(Aim::Emissions, hours) <= most * (1.0 + SAME))
    }

    /// Finish and cost of a choice that does all the work; `None` where it cannot, or emits more than
    /// allowed.
    pub(super) fn whole(&self, choice: usize) -> Option<(f64, f64)> {
        let own = &self.choices[choice];
        own.whole(self.work).filter(|_| self.keeps_emissions(&[(choice, self.work / own.rate)]))
    }

    /// All choices but those that any plan can do without, because others are no slower, no
    /// dearer and emit no more, per sample and once, and either one of these can do all the work, and takes the
    /// place of the choice; or as many of them as a plan has parts can do as much: one of them is
    /// not in the plan yet and takes the place.
    ///
    /// No row gets worse by that, so no optimum changes. Of equals the first stay.
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
                // Billing in blocks adds a block at most.
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

    /// Most useful hours of a choice: all the work, its own limit, or the deadline.
    fn cap(&self, choice: &Choice, deadline: Option<f64>) -> f64 {
        let within = deadline.map_or(f64::INFINITY, |d| (d - choice.hours_once - choice.hours_shared) / choice.hours);
        (self.work / choice.rate).min(choice.most_hours).min(within).max(0.0)
    }

    fn has_shared(&self) -> bool {
        self.choices.iter().any(|choice| choice.hours_shared > 0.0)
    }

    /// Choices that are billed in blocks, each with the variable of its blocks billed.
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
            // A program is minimised.
            Aim::Work => self.choices.iter().enumerate().map(|(c, choice)| (n + c, -choice.rate)).collect(),
            Aim::Excess { .. } => Vec::new(),
        }
    }
}
