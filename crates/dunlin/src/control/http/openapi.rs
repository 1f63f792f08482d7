//! The OpenAPI 3.1 document, made from the table of resources and the types.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::problem::Details;
use super::routes::{Answer, BASE, ROUTES, Route};
use crate::control::values::Reply;

/// Where schemas are in the document.
const SCHEMAS: &str = "#/components/schemas";

/// The document.
pub(super) fn document() -> Value {
    let settings = || {
        SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = SCHEMAS.trim_start_matches('#').to_owned().into();
            settings.meta_schema = None;
        })
    };
    let mut answers = settings().for_serialize().into_generator();
    let inline = |settings: &mut SchemaSettings| settings.inline_subschemas = true;
    let mut questions = settings().for_deserialize().with(inline).into_generator();
    // The fields of replies that are no type of their own.
    let replies = answers.root_schema_for::<Reply>();
    let replies = serde_json::to_value(replies).unwrap_or_default();
    let mut paths = Map::new();
    for route in ROUTES {
        let operation = operation(route, &replies, &mut answers, &mut questions);
        let path = paths.entry(format!("{BASE}{}", route.path));
        let path = path.or_insert_with(|| json!({}));
        if let Some(methods) = path.as_object_mut() {
            methods.insert(route.method.to_ascii_lowercase(), operation);
        }
    }
    let problem = answers.subschema_for::<Details<'_>>();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Dunlin control API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Sees and steers a running broker.",
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "responses": {
                "Problem": {
                    "description": "It is not done.",
                    "content": { "application/problem+json": { "schema": problem } },
                },
            },
            "schemas": answers.take_definitions(true),
        },
    });
    plain(&mut document);
    document
}

fn operation(
    route: &Route,
    replies: &Value,
    answers: &mut SchemaGenerator,
    questions: &mut SchemaGenerator,
) -> Value {
    let description = match route.role {
        Some(role) => format!("Needs a token of role `{}` or above.", role.name()),
        None => "Needs no token.".to_owned(),
    };
    let (media, schema) = match route.answer {
        Answer::Of(describe) => ("application/json", json!(describe(answers))),
        Answer::Reply(name) => ("application/json", variant(replies, name)),
        Answer::Document => ("application/json", json!({ "type": "object" })),
        Answer::Lines => ("application/jsonl", json!({ "type": "string" })),
    };
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "description": description,
        "parameters": parameters(route, questions),
        "responses": {
            "200": { "description": "It is done.", "content": { media: { "schema": schema } } },
            "default": { "$ref": "#/components/responses/Problem" },
        },
    });
    if let Some(fields) = operation.as_object_mut() {
        if let Some(describe) = route.body {
            let schema = describe(questions);
            let content = json!({ "application/json": { "schema": schema } });
            let body = json!({ "required": true, "content": content });
            fields.insert("requestBody".to_owned(), body);
        }
        match route.role {
            Some(role) => fields.insert("x-role".to_owned(), role.name().into()),
            None => fields.insert("security".to_owned(), json!([])),
        };
    }
    operation
}

/// As in `get-clients-id`.
fn operation_id(route: &Route) -> String {
    let path = route.path.replace(['{', '}', '.'], "").replace('/', "-");
    format!("{}{path}", route.method.to_ascii_lowercase())
}

/// The name in the path, and the fields of the query.
fn parameters(route: &Route, questions: &mut SchemaGenerator) -> Vec<Value> {
    let name = route.name().map(|name| {
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
    });
    let query = serde_json::to_value((route.query)(questions)).unwrap_or_default();
    let is_required = |name: &str| {
        let required = query["required"].as_array();
        required.is_some_and(|names| names.iter().any(|it| it == name))
    };
    let fields = query["properties"].as_object().into_iter().flatten();
    let fields = fields.map(|(name, schema)| {
        let mut schema = schema.clone();
        let fields = schema.as_object_mut();
        let description = fields.and_then(|fields| fields.remove("description"));
        json!({
            "name": name,
            "in": "query",
            "required": is_required(name),
            "description": description.unwrap_or_default(),
            "schema": schema,
        })
    });
    name.into_iter().chain(fields).collect()
}

/// The fields of a variant of [`Reply`], without its name.
fn variant(replies: &Value, name: &str) -> Value {
    let variants = replies["oneOf"].as_array().into_iter().flatten();
    let mut found = variants.filter(|it| it["properties"]["reply"]["const"] == name);
    let mut schema = found.next().cloned().unwrap_or_default();
    if let Some(fields) = schema["properties"].as_object_mut() {
        fields.remove("reply");
    }
    if let Some(required) = schema["required"].as_array_mut() {
        required.retain(|name| name != "reply");
    }
    schema
}

/// Takes the marks of links in Rust's documentation out of descriptions.
fn plain(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "description" => {
                        *text = text.replace("[`", "`").replace("`]", "`");
                    }
                    value => plain(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(plain),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(to)) = fields.get("$ref") {
                    found.insert(to.clone());
                }
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_resource_and_every_schema_is_there() {
        let document = document();
        let mut ids = BTreeSet::new();
        for route in ROUTES {
            let path = format!("{BASE}{}", route.path);
            let operation = &document["paths"][&path][route.method.to_ascii_lowercase()];
            let id = operation["operationId"].as_str().expect(&path);
            assert!(ids.insert(id.to_owned()), "{id} is there twice");
            let answer = &operation["responses"]["200"]["content"];
            let schema = answer.as_object().and_then(|it| it.values().next());
            let schema = &schema.expect(&path)["schema"];
            assert!(
                schema.as_object().is_some_and(|it| !it.is_empty()),
                "{path}"
            );
        }
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 10, "{found:?}");
        for reference in found {
            let at = reference.strip_prefix('#').expect("within the document");
            assert!(document.pointer(at).is_some(), "{reference}");
        }
        let text = document.to_string();
        assert!(!text.contains("[`"), "{text}");
    }

    #[test]
    fn parameters_and_fields_are_those_of_the_types() {
        let document = document();
        let clients = &document["paths"]["/api/v1/clients"]["get"]["parameters"];
        let names: Vec<_> = clients
            .as_array()
            .expect("some")
            .iter()
            .map(|it| &it["name"])
            .collect();
        for name in ["prefix", "user", "address", "protocol", "after", "limit"] {
            assert!(names.iter().any(|it| *it == name), "{names:?}");
        }
        let topic = &document["paths"]["/api/v1/receivers"]["get"]["parameters"];
        let topic = topic
            .as_array()
            .expect("some")
            .iter()
            .find(|it| it["name"] == "topic");
        assert_eq!(topic.expect("there")["required"], true);
        let done = &document["paths"]["/api/v1/bans"]["post"]["responses"]["200"];
        let done = &done["content"]["application/json"]["schema"];
        assert_eq!(done["required"], json!(["count"]), "{done}");
        assert!(done["properties"].get("reply").is_none(), "{done}");
        let client = &document["components"]["schemas"]["Client"]["properties"];
        for name in ["client_id", "cipher_suite", "quic"] {
            assert!(client.get(name).is_some(), "{client}");
        }
    }
}
