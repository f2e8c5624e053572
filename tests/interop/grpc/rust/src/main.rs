//! The official Rust client as it comes: send|simple|sql|transact|die|answer ENDPOINT TOPIC GROUP COUNT; a JSON
//! object a line. What each role does: see ../../python_client.py. The crate has no push consumer and no recall.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::process::exit;
use std::time::{Duration, Instant};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};
use tokio::time::{sleep, timeout};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const LIMIT: Duration = Duration::from_secs(90);

fn connecting(endpoint: &str) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(endpoint);
    option.set_enable_tls(false);
    option.set_long_polling_timeout(Duration::from_secs(3));
    option
}

fn of_topic(topic: &str) -> ProducerOption {
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic]);
    option
}

// Rust's quotes of plain text are JSON's.
fn say(name: &str, value: &str) {
    println!("{{\"{name}\": {value:?}}}");
}

async fn send(endpoint: &str, topic: &str, count: usize) -> Result<()> {
    let mut producer = Producer::new(of_topic(topic), connecting(endpoint))?;
    producer.start().await?;
    for number in 0..count {
        let properties = HashMap::from([("number", number.to_string())]);
        let message = MessageBuilder::builder()
            .set_topic(topic)
            .set_tag("tag")
            .set_keys(vec![format!("key-{number}")])
            .set_properties(properties)
            .set_body(format!("body-{number}").into_bytes())
            .build()?;
        say("id", producer.send(message).await?.message_id());
    }
    producer.shutdown().await?;
    Ok(())
}

async fn simple(endpoint: &str, topic: &str, group: &str, count: usize, wanted: FilterExpression) -> Result<()> {
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![topic]);
    option.set_consumer_group(group);
    let mut consumer = SimpleConsumer::new(option, connecting(endpoint))?;
    consumer.start().await?;
    let began = Instant::now();
    let mut seen = 0;
    while seen < count && began.elapsed() < LIMIT {
        for message in consumer.receive(topic, &wanted).await? {
            println!(
                "{{\"body\": {:?}, \"keys\": {:?}, \"tag\": {:?}, \"attempt\": {}}}",
                String::from_utf8_lossy(message.body()),
                message.keys().join(" "),
                message.tag().unwrap_or(""),
                message.delivery_attempt(),
            );
            consumer.ack(&message).await?;
            seen += 1;
        }
    }
    consumer.shutdown().await?;
    Ok(())
}

/// A producer that commits when the broker asks, and tells here that it was asked.
async fn checking(endpoint: &str, topic: &str) -> Result<(Producer, UnboundedReceiver<()>)> {
    let (asked, questions) = unbounded_channel();
    let checker = move |_: String, message: rocketmq::model::message::MessageView| {
        say("asked", &String::from_utf8_lossy(message.body()));
        let _ = asked.send(());
        TransactionResolution::COMMIT
    };
    let mut producer = Producer::new_transaction_producer(of_topic(topic), connecting(endpoint), Box::new(checker))?;
    producer.start().await?;
    Ok((producer, questions))
}

async fn begin(producer: &Producer, topic: &str, body: &str) -> Result<impl Transaction> {
    let message = MessageBuilder::transaction_message_builder(topic, body.into()).build()?;
    let transaction = producer.send_transaction_message(message).await?;
    say("id", transaction.message_id());
    Ok(transaction)
}

async fn answer_one(producer: Producer, mut questions: UnboundedReceiver<()>) -> Result<()> {
    let _ = timeout(LIMIT, questions.recv()).await;
    // The answer is on its way.
    sleep(Duration::from_secs(1)).await;
    producer.shutdown().await?;
    Ok(())
}

async fn transact(endpoint: &str, topic: &str) -> Result<()> {
    let (producer, questions) = checking(endpoint, topic).await?;
    begin(&producer, topic, "committed").await?.commit().await?;
    begin(&producer, topic, "rolled back").await?.rollback().await?;
    begin(&producer, topic, "asked about").await?;
    answer_one(producer, questions).await
}

async fn die(endpoint: &str, topic: &str) -> Result<()> {
    let (producer, _questions) = checking(endpoint, topic).await?;
    begin(&producer, topic, "left behind").await?;
    exit(0)
}

async fn answer(endpoint: &str, topic: &str) -> Result<()> {
    let (producer, questions) = checking(endpoint, topic).await?;
    answer_one(producer, questions).await
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = env::args().collect();
    let [_, role, endpoint, topic, group, count] = &words[..] else {
        return Err("ROLE ENDPOINT TOPIC GROUP COUNT".into());
    };
    let count = count.parse()?;
    match role.as_str() {
        "send" => send(endpoint, topic, count).await,
        "simple" => simple(endpoint, topic, group, count, FilterExpression::new(FilterType::Tag, "*")).await,
        "sql" => simple(endpoint, topic, group, count, FilterExpression::new(FilterType::Sql, "number >= 10")).await,
        "transact" => transact(endpoint, topic).await,
        "die" => die(endpoint, topic).await,
        "answer" => answer(endpoint, topic).await,
        other => Err(format!("no role {other}").into()),
    }
}
