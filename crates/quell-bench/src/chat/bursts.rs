//! What customers write, and what must have come of it: pure functions.
//!
//! Each message says whose it is, of which burst, and its place in it. The model answers with the last line that it was asked, so a
//! reply says to which burst it belongs, and a question shows what was joined.

use std::collections::HashMap;
use std::fmt;

/// Beyond these, errors are only counted.
const TOLD: usize = 10;

/// What one customer writes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Burst {
    pub(crate) customer: usize,
    /// The first or the second of this customer.
    pub(crate) number: usize,
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "burst {} of customer {}", self.number, self.customer)
    }
}

impl Burst {
    /// All bursts of so many customers.
    pub(crate) fn all(customers: usize) -> impl Iterator<Item = Burst> {
        (0..customers).flat_map(|customer| {
            let first = Burst { customer, number: 1 };
            [Some(first), first.next()].into_iter().flatten()
        })
    }

    /// One customer of ten writes again when the answer is there.
    pub(crate) fn next(self) -> Option<Burst> {
        (self.number == 1 && self.customer.is_multiple_of(10)).then_some(Burst { number: 2, ..self })
    }

    /// Two to four.
    pub(crate) fn messages(self) -> Vec<String> {
        let count = 2 + (self.customer + self.number) % 3;
        let text = |n| {
            format!("customer {} burst {} message {n}/{count}: do you buy coins?", self.customer, self.number)
        };
        (1..=count).map(text).collect()
    }

    /// Of a customer that can be called.
    pub(crate) fn phone(self) -> String {
        format!("1202{:08}", self.customer)
    }

    /// What WATI sends, message by message. Every twentieth customer's first one comes twice, because providers repeat.
    pub(crate) fn deliveries(self) -> Vec<String> {
        let delivery = |(place, text): (usize, String)| {
            serde_json::json!({
                "id": format!("bench-{}-{}-{place}", self.customer, self.number),
                "whatsappMessageId": format!("wamid.{}.{}.{place}", self.customer, self.number),
                "eventType": "message", "type": "text", "text": text, "owner": false,
                "waId": self.phone(), "senderName": format!("Customer {}", self.customer),
                "timestamp": "1759999993", "channelPhoneNumber": "12025550199",
            })
            .to_string()
        };
        let mut all: Vec<String> = self.messages().into_iter().enumerate().map(delivery).collect();
        if self.customer.is_multiple_of(20) {
            all.insert(1, all[0].clone());
        }
        all
    }

    /// The one that a text was written in.
    fn of(text: &str) -> Option<Burst> {
        let mut words = text.split_ascii_whitespace();
        let mut number_after = |name: &str| {
            words.next().filter(|word| *word == name)?;
            words.next()?.parse().ok()
        };
        Some(Burst { customer: number_after("customer")?, number: number_after("burst")? })
    }
}

/// A line of a question without the seconds before it: `[+3s] text`.
pub(crate) fn without_seconds(line: &str) -> &str {
    let rest = line.strip_prefix("[+").and_then(|rest| rest.split_once("s] "));
    rest.filter(|(seconds, _)| seconds.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(line, |(_, text)| text)
}

/// What the local model says.
pub(crate) fn answer(question: &str) -> String {
    question.lines().last().map(without_seconds).unwrap_or_default().to_owned()
}

/// A reply, as its customer got it.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) to: String,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn burst(&self) -> Option<Burst> {
        Burst::of(&self.text)
    }
}

/// Exactly one reply for each burst, to the one who wrote it, in order; each burst asked once, whole and in order. Or what is wrong.
pub(crate) fn check(customers: usize, replies: &[Reply], questions: &[String]) -> Result<(), String> {
    let mut wrong = Vec::new();
    let mut answered: HashMap<Burst, usize> = HashMap::new();
    for reply in replies {
        let Some(burst) = reply.burst() else {
            wrong.push(format!("a reply to nothing that was written: {:?}", reply.text));
            continue;
        };
        if burst.phone() != reply.to {
            wrong.push(format!("the reply to {burst} went to {}", reply.to));
        }
        if burst.messages().last() != Some(&reply.text) {
            wrong.push(format!("the reply to {burst} is not to its last message: {:?}", reply.text));
        }
        if burst.number == 1 && answered.contains_key(&Burst { number: 2, ..burst }) {
            wrong.push(format!("the reply to {burst} came after that to the next"));
        }
        *answered.entry(burst).or_default() += 1;
    }
    let mut asked: HashMap<Burst, usize> = HashMap::new();
    for question in questions {
        let lines: Vec<&str> = question.lines().map(without_seconds).collect();
        let Some(burst) = lines.first().and_then(|line| Burst::of(line)) else {
            wrong.push(format!("a question that nobody asked: {question:?}"));
            continue;
        };
        if lines != burst.messages() {
            wrong.push(format!("{burst} was not asked whole and in order: {lines:?}"));
        }
        *asked.entry(burst).or_default() += 1;
    }
    for burst in Burst::all(customers) {
        let count = |of: &HashMap<Burst, usize>| of.get(&burst).copied().unwrap_or(0);
        match (count(&answered), count(&asked)) {
            (1, 1) => {}
            (answered, asked) => {
                wrong.push(format!("{burst} was asked {asked} times and answered {answered} times"))
            }
        }
    }
    match wrong.len() {
        0 => Ok(()),
        count => Err(format!("{count} errors: {}", wrong[..count.min(TOLD)].join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUSTOMERS: usize = 25;

    fn good() -> (Vec<Reply>, Vec<String>) {
        let question = |burst: Burst| burst.messages().join("\n[+1s] ");
        let reply = |burst: Burst| Reply { to: burst.phone(), text: answer(&question(burst)) };
        (Burst::all(CUSTOMERS).map(reply).collect(), Burst::all(CUSTOMERS).map(question).collect())
    }

    #[test]
    fn one_reply_for_each_burst_is_right() {
        let (replies, questions) = good();
        assert_eq!(replies.len(), CUSTOMERS + 3);
        assert_eq!(check(CUSTOMERS, &replies, &questions), Ok(()));
        let sizes: Vec<usize> =
            (0..3).map(|customer| Burst { customer, number: 1 }.messages().len()).collect();
        assert_eq!(sizes, [3, 4, 2]);
        assert_eq!(Burst { customer: 20, number: 1 }.deliveries().len(), 2 + 1, "one comes twice");
    }

    #[test]
    fn whatever_is_wrong_is_found() {
        let wrong = |change: &dyn Fn(&mut Vec<Reply>, &mut Vec<String>)| {
            let (mut replies, mut questions) = good();
            change(&mut replies, &mut questions);
            check(CUSTOMERS, &replies, &questions).unwrap_err()
        };
        assert!(wrong(&|replies, _| drop(replies.remove(7))).contains("answered 0 times"));
        assert!(wrong(&|replies, _| replies.push(replies[7].clone())).contains("answered 2 times"));
        assert!(wrong(&|replies, _| replies.swap(0, 1)).contains("came after"));
        assert!(wrong(&|replies, _| replies[3].to = replies[4].to.clone()).contains("went to 1202"));
        assert!(wrong(&|replies, _| replies[3].text = "Hello".to_owned()).contains("to nothing"));
        assert!(
            wrong(&|replies, _| replies[0].text = Burst { customer: 0, number: 1 }.messages()[0].clone())
                .contains("not to its last message")
        );
        assert!(wrong(&|_, questions| questions.push(questions[2].clone())).contains("asked 2 times"));
        let half = |_: &mut Vec<Reply>, questions: &mut Vec<String>| {
            questions[2] = questions[2].lines().next().unwrap().to_owned();
        };
        assert!(wrong(&half).contains("not asked whole"));
    }
}
