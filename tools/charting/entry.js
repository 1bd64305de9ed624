// What reports need of Vega: charts are Vega-Lite specifications, compiled and drawn in the page.
// The interpreter evaluates expressions without eval, which the page's content-security policy forbids.
import { parse, View } from "vega";
import { expressionInterpreter } from "vega-interpreter";
import { compile } from "vega-lite";

globalThis.vegas = { View, parse, compile, expressionInterpreter };
