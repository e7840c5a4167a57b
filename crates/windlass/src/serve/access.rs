//! Who may read the metrics: whom the API server knows by a bearer token, and lets get `/metrics`. As with every component of
//! Kubernetes, that is granted by a role with the non-resource URL.

use axum::{
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};

/// Lets a request pass, or answers it.
pub(super) async fn review(State(client): State<Client>, request: Request, next: Next) -> Response {
    let token = bearer(&request).map(str::to_owned);
    let Some(token) = token else {
        return refusal(StatusCode::UNAUTHORIZED, "a bearer token is needed");
    };
    let path = request.uri().path().to_owned();
    match judge(&client, token, path).await {
        Ok(Verdict::Allowed) => next.run(request).await,
        Ok(Verdict::Unknown) => refusal(StatusCode::UNAUTHORIZED, "the token is not known"),
        Ok(Verdict::Refused) => refusal(
            StatusCode::FORBIDDEN,
            "a role that allows to get the non-resource URL /metrics is needed",
        ),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "who asks for metrics cannot be looked up"
            );
            refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "the API server does not tell who asks",
            )
        }
    }
}

enum Verdict {
    Allowed,
    Unknown,
    Refused,
}

fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers().get(header::AUTHORIZATION)?;
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn refusal(status: StatusCode, why: &'static str) -> Response {
    let mut answer = (status, why).into_response();
    if status == StatusCode::UNAUTHORIZED {
        let bearer = header::HeaderValue::from_static("Bearer");
        answer
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, bearer);
    }
    answer
}

async fn judge(client: &Client, token: String, path: String) -> kube::Result<Verdict> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let known = Api::<TokenReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?
        .status
        .unwrap_or_default();
    let Some(user) = known.user.filter(|_| known.authenticated == Some(true)) else {
        return Ok(Verdict::Unknown);
    };
    let UserInfo {
        username,
        uid,
        groups,
        extra,
    } = user;
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: username,
            uid,
            groups,
            extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let allowed = Api::<SubjectAccessReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?
        .status
        .is_some_and(|status| status.allowed);
    Ok(if allowed {
        Verdict::Allowed
    } else {
        Verdict::Refused
    })
}
