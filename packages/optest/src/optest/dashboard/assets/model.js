// The data that the page has, how it is fetched, and small helpers for the document.
// Results are untrusted: they reach the document as text only, never as markup.
"use strict";

const optest = (() => {
  const waiting = new Map();
  const received = new Map();
  const state = { index: null, a: null, b: null, version: "" };

  /** Called by data scripts. */
  function receive(name, data) {
    received.set(name, data);
    const found = waiting.get(name);
    if (found) found.resolve(data);
  }

  /** The data called `name`; rejects with a sentence if it is not there. */
  function load(name) {
    if (received.has(name)) return Promise.resolve(received.get(name));
    if (waiting.has(name)) return waiting.get(name).promise;
    const one = {};
    one.promise = new Promise((resolve, reject) => { one.resolve = resolve; one.reject = reject; });
    waiting.set(name, one);
    const script = document.createElement("script");
    script.src = `data/${name}.js${state.version && `?v=${state.version}`}`;
    const fail = () => {
      if (received.has(name)) return;
      waiting.delete(name);
      one.reject(new Error(`The data ${name} could not be loaded. Make the page again with “optest dashboard -o DIR” `
        + "and keep its data folder beside it, or start “optest serve” again."));
    };
    script.onerror = fail;
    script.onload = fail; // a script that ran has called receive
    document.head.append(script);
    return one.promise;
  }

  /** An element with attributes (functions are listeners) and children, which are text or elements. */
  function h(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") element.addEventListener(name, value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value != null) element.setAttribute(name, value);
    }
    element.append(...children.filter((one) => one != null));
    return element;
  }

  const byId = (id) => document.getElementById(id);
  const failing = () => new Set(state.index.failures.map((name) => state.index.statuses.indexOf(name)));
  const PASSED = 0;

  /** Adds pairs [status, cases, …] to counts. */
  function addCounts(counts, pairs) {
    for (let i = 0; i < pairs.length; i += 2) counts[pairs[i]] = (counts[pairs[i]] || 0) + pairs[i + 1];
  }

  /** What counts amount to: total, passed, failed, and the class that shows it. */
  function judge(counts) {
    const bad = failing();
    let total = 0, failed = 0;
    for (const [status, cases] of Object.entries(counts)) {
      total += cases;
      if (bad.has(Number(status))) failed += cases;
    }
    const passed = counts[PASSED] || 0;
    let kind = "ok";
    if (!total) kind = "missing";
    else if (failed) kind = failed * 3 < total ? "fail1" : failed < total ? "fail2" : "fail3";
    else if (passed < total) kind = "gap";
    return { total, passed, failed, kind, text: passed === total ? String(total) : `${passed}/${total}` };
  }

  /** Counts in words, for those who do not see the colour. */
  function words(counts) {
    const parts = Object.entries(counts).map(([status, cases]) =>
      `${cases} ${state.index.statuses[status].replace("_", " ")}`);
    return parts.join(", ") || "no result";
  }

  /** An overview with its cells by operator, and operators by name. */
  function prepare(overview) {
    const byOperator = overview.operators.map(() => []);
    for (const cell of overview.cells) byOperator[cell[0]].push(cell);
    return { ...overview, byOperator, place: new Map(overview.operators.map((name, i) => [name, i])) };
  }

  function runName(run) {
    return `${run.target}, ${run.started.slice(0, 16).replace("T", " ")} (${run.run_id})`;
  }

  return { receive, load, h, byId, addCounts, judge, words, prepare, runName, state, view: {} };
})();
