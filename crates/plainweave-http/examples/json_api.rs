//! A JSON API: matchit finds the route, serde_json reads and writes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use matchit::Router;
use plainweave_http::header::CONTENT_TYPE;
use plainweave_http::{Handler, HeaderValue, Request, Response, Server, StatusCode};
use serde_json::{Value, json};

/// Bytes of a document.
const LONGEST: usize = 64 << 10;

#[derive(Clone, Copy)]
enum Route {
    Notes,
    Note,
}

#[derive(Default)]
struct Notes {
    notes: BTreeMap<u64, Value>,
    last: u64,
}

type Answer = Result<(StatusCode, Value), (StatusCode, &'static str)>;

fn document(request: &mut Request<'_>) -> Result<Value, (StatusCode, &'static str)> {
    let body = request
        .read_body(LONGEST)
        .map_err(|_| (StatusCode::BAD_REQUEST, "no body of at most 64 KiB"))?;
    serde_json::from_slice(&body).map_err(|_| (StatusCode::BAD_REQUEST, "the body is not JSON"))
}

fn answer(routes: &Router<Route>, notes: &Mutex<Notes>, request: &mut Request<'_>) -> Answer {
    const MISSING: (StatusCode, &str) = (StatusCode::NOT_FOUND, "there is nothing of that name");
    let found = routes.at(request.head().path()).map_err(|_| MISSING)?;
    let id = found
        .params
        .get("id")
        .and_then(|id| id.parse().ok())
        .unwrap_or(0);

    // Before the lock: a client may take its time.
    let method = request.method().as_str().to_owned();
    let sent = if matches!(&*method, "POST" | "PUT") {
        document(request)?
    } else {
        Value::Null
    };

    let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
    match (*found.value, &*method) {
        (Route::Notes, "GET") => Ok((StatusCode::OK, json!(notes.notes))),
        (Route::Notes, "POST") => {
            notes.last += 1;
            let id = notes.last;
            notes.notes.insert(id, sent);
            Ok((StatusCode::CREATED, json!({ "id": id })))
        }
        (Route::Note, "GET") => notes
            .notes
            .get(&id)
            .map(|note| (StatusCode::OK, note.clone()))
            .ok_or(MISSING),
        (Route::Note, "PUT") => {
            let note = notes.notes.get_mut(&id).ok_or(MISSING)?;
            *note = sent;
            Ok((StatusCode::OK, note.clone()))
        }
        (Route::Note, "DELETE") => notes
            .notes
            .remove(&id)
            .map(|note| (StatusCode::OK, note))
            .ok_or(MISSING),
        _ => Err((StatusCode::METHOD_NOT_ALLOWED, "not with this method")),
    }
}

pub(crate) fn handler() -> impl Handler {
    let mut routes = Router::new();
    for (path, route) in [("/notes", Route::Notes), ("/notes/{id}", Route::Note)] {
        routes.insert(path, route).expect("no two routes are alike");
    }
    let notes = Mutex::new(Notes::default());
    move |request: &mut Request<'_>| {
        let (status, value) = answer(&routes, &notes, request)
            .unwrap_or_else(|(status, why)| (status, json!({ "error": why })));
        let response = Response::new(status).with_body(format!("{value}\n"));
        response.with_header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
    }
}

fn main() -> io::Result<()> {
    Server::run("127.0.0.1:8080", handler())
}
