// Runs the scenarios with one SDK in one way of addressing, and prints one JSON line: node run.mjs <package> <mode>.
import { readFileSync } from 'node:fs'
import { randomUUID } from 'node:crypto'
import { Absent, scenarios } from './scenarios.mjs'

const [name, mode] = process.argv.slice(2)
const manifest = JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url)))
const sdk = await import(name)
const template = process.env.MATRIX_TEMPLATE ?? 'default'
const limitMs = Number(process.env.MATRIX_SCENARIO_MS ?? 60_000)
const only = process.env.MATRIX_ONLY

const metadata = { suite: 'matrix', 'a b&=+%': 'ü 値' }
const envs = { GLOBAL: 'global' }
const create = (more) => sdk.Sandbox.create(template, { metadata, envs, timeoutMs: 300_000, ...more })

// reach asks a port of a sandbox the way that the mode addresses it.
const reach = (sandbox, port, path) =>
  mode === 'host'
    ? fetch(`https://${sandbox.getHost(port)}${path}`)
    : fetch(`${process.env.E2B_SANDBOX_URL}${path}`, {
        headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': String(port) },
      })

const within = (promise) => {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`did not end within ${limitMs} ms`)), limitMs)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

const results = {}
let failed = 0
let sandbox, marked
try {
  sandbox = await within(create())
  const mark = 'm' + randomUUID()
  marked = await within(create({ metadata: { ...metadata, mark } }))
  Object.assign(sandbox, { matrixMark: mark, markedId: marked.sandboxId })
  const dir = `/tmp/matrix-${mark}`
  const [major, minor] = manifest.version.split('.').map(Number)
  const context = { sdk, major, minor, sandbox, dir, template, create, reach, parallel: Number(process.env.MATRIX_PARALLEL ?? 5), thorough: process.env.MATRIX_THOROUGH === '1' }
  for (const [title, run] of Object.entries(scenarios)) {
    if (only && !title.includes(only)) continue
    const begin = performance.now()
    try {
      await within(run(context))
      results[title] = { ok: true }
    } catch (error) {
      if (error instanceof Absent) results[title] = { absent: error.message }
      else {
        failed++
        results[title] = { ok: false, error: String(error?.stack ?? error).split('\n').slice(0, 12).join('\n') }
      }
    }
    results[title].ms = Math.round(performance.now() - begin)
  }
} catch (error) {
  failed++
  results['create'] = { ok: false, error: String(error?.stack ?? error) }
} finally {
  await Promise.allSettled([sandbox, marked].map((s) => s?.kill()))
}
console.log(JSON.stringify({ package: 'e2b', version: manifest.version, mode, failed, results }))
process.exit(failed === 0 ? 0 : 1)
