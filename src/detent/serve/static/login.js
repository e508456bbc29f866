"use strict";
// The login page. The token of a link is in the fragment, which browsers do not send; it is removed before anything else happens.
const at = (id) => document.getElementById(id);
const state = at("state");

async function ask(method, path, body, csrf) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (csrf) headers["Detent-CSRF"] = csrf;
  const answer = await fetch(path, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    credentials: "same-origin",
    cache: "no-store",
  });
  const text = await answer.text();
  return { ok: answer.ok, status: answer.status, document: text ? JSON.parse(text) : null };
}

async function showMe() {
  const { ok, document: me } = await ask("GET", "/v1/me");
  if (!ok) return false;
  at("principal").textContent = me.name ? `${me.name} (${me.principal})` : me.principal;
  at("workspace").textContent = me.workspace;
  at("scopes").textContent = me.scopes.join(", ");
  at("logout").onclick = async () => {
    await ask("DELETE", "/v1/login", undefined, me.csrf);
    location.replace("/login");
  };
  state.textContent = "You are logged in.";
  at("form").hidden = true;
  at("me").hidden = false;
  return true;
}

function showForm(message) {
  state.textContent = message;
  at("form").hidden = false;
  at("token").focus();
}

async function logIn(token) {
  const { ok, document: answer } = await ask("POST", "/v1/login", { token });
  if (ok && (await showMe())) return;
  showForm(ok ? "The session could not be read." : `${answer.detail}${answer.hint ? ": " + answer.hint : ""}`);
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = at("token").value.trim();
  at("token").value = "";
  void logIn(token);
});

const token = location.hash.slice(1);
if (token) {
  history.replaceState(null, "", location.pathname);
  void logIn(token);
} else {
  showMe().then((known) => known || showForm("Paste an API key."));
}
