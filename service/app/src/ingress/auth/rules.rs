//! Who may do what, with a token that is valid.

use std::str::FromStr;

use axum::http::Method;

use super::claims::Claims;
use super::refusal::{Refusal, quoted};

/// Google itself gives out these addresses, so that no organisation has to.
const SERVICE_ACCOUNTS: &str = ".gserviceaccount.com";

/// The settings of the check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// For whom tokens may be made.
    pub audiences: Vec<String>,
    /// Who may post, and see.
    pub senders: Vec<Email>,
    /// Who may see.
    pub viewers: Vec<Viewer>,
    /// Where the keys are published.
    pub jwks_url: String,
}

/// An e-mail address, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Email(String);

/// Somebody who may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Viewer {
    /// This one.
    Email(Email),
    /// Everybody whose address is of this domain.
    Domain(String),
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// Only to look.
    See,
    /// Anything else.
    Act,
}

impl Deed {
    pub(super) fn of(method: &Method) -> Self {
        if [Method::GET, Method::HEAD].contains(method) {
            Self::See
        } else {
            Self::Act
        }
    }
}

impl Rules {
    /// Whether the bearer of these claims may do it. `platform`: a platform in
    /// front has checked for whom the token was made.
    pub(super) fn allow(&self, claims: &Claims, deed: Deed, platform: bool) -> Result<(), Refusal> {
        let email = claims.verified_email()?;
        let sends = self.senders.iter().any(|sender| sender.is(email));
        let views = self.viewers.iter().any(|viewer| viewer.is(email, claims));
        let only_looks = views && deed == Deed::See;
        if !sends && !only_looks {
            return Err(self.stranger(email, deed, views));
        }
        // Viewers come with the audience of their own tool, and only through a
        // platform that accepts it. Eventarc's isn't known beforehand.
        if platform && (self.audiences.is_empty() || only_looks) {
            return Ok(());
        }
        let audiences = claims.audiences();
        if audiences
            .iter()
            .any(|a| self.audiences.iter().any(|b| a == b))
        {
            return Ok(());
        }
        let audience = quoted(&audiences.join(", "));
        let what = format!("the token is for the audience {audience}, which is none of --audience");
        Err(Refusal::forbidden(what, self.audiences.join(", ")))
    }

    fn stranger(&self, email: &str, deed: Deed, views: bool) -> Refusal {
        let who = quoted(email);
        let what = match (deed, views) {
            (Deed::Act, true) => format!("{who} is a viewer, who may see but not post"),
            (Deed::Act, false) => format!("{who} is none of --sender"),
            (Deed::See, _) if self.viewers.iter().any(|v| v.has_domain_of(email)) => format!(
                "{who} is of a domain of --viewer, but of no account that an organisation \
                 manages (no `hd` in the token)"
            ),
            (Deed::See, _) => format!("{who} is none of --sender and --viewer"),
        };
        let senders = self.senders.iter().map(|sender| sender.0.as_str());
        let viewers = self.viewers.iter().map(Viewer::text);
        let accepted: Vec<_> = match deed {
            Deed::Act => senders.collect(),
            Deed::See => senders.chain(viewers).collect(),
        };
        Refusal::forbidden(what, accepted.join(", "))
    }
}

impl Email {
    fn is(&self, email: &str) -> bool {
        self.0.eq_ignore_ascii_case(email)
    }
}

impl FromStr for Email {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (local, domain) = text.split_once('@').ok_or(())?;
        let plain = |part: &str| {
            !part.is_empty()
                && part
                    .chars()
                    .all(|c| c.is_ascii_graphic() && !"@,:\"".contains(c))
        };
        let whole = plain(local) && is_domain(domain);
        whole.then(|| Self(text.to_ascii_lowercase())).ok_or(())
    }
}

impl Viewer {
    fn is(&self, email: &str, claims: &Claims) -> bool {
        match self {
            Self::Email(viewer) => viewer.is(email),
            Self::Domain(domain) => {
                let vouched = claims.is_managed() || domain.ends_with(SERVICE_ACCOUNTS);
                vouched && self.has_domain_of(email)
            }
        }
    }

    fn has_domain_of(&self, email: &str) -> bool {
        let of = email.rsplit_once('@').map_or("", |(_, domain)| domain);
        matches!(self, Self::Domain(domain) if domain.eq_ignore_ascii_case(of))
    }

    fn text(&self) -> &str {
        match self {
            Self::Email(email) => &email.0,
            Self::Domain(domain) => domain,
        }
    }
}

impl FromStr for Viewer {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.strip_prefix("domain:") {
            None => text.parse().map(Self::Email),
            Some(domain) if is_domain(domain) => Ok(Self::Domain(domain.to_ascii_lowercase())),
            Some(_) => Err(()),
        }
    }
}

fn is_domain(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let label = |label: &str| !label.is_empty() && label.chars().all(plain);
    text.contains('.') && text.split('.').all(label)
}
