// The scenarios that every published E2B SDK must pass, written once for all of them. Where an SDK lacks a call, the
// scenario says so with absent().
import assert from 'node:assert/strict'
import { createHash, randomBytes, randomInt } from 'node:crypto'

class Absent extends Error {}

const absent = (what) => {
  throw new Absent(what)
}

const errorOf = async (promise) => {
  try {
    await promise
  } catch (error) {
    return error
  }
  assert.fail('the call succeeded; it had to fail')
}

const hasClass = (error, ...names) => {
  for (let c = error?.constructor; c; c = Object.getPrototypeOf(c)) if (names.includes(c.name)) return
  assert.fail(`threw ${error?.constructor?.name}: ${error?.message}; want ${names.join(' or ')}`)
}

// until waits for a condition that an event of the sandbox brings about.
const until = async (condition, what) => {
  const deadline = Date.now() + 15_000
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `waited in vain for ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

const listAll = async ({ Sandbox }, opts) => {
  const listed = Sandbox.list(opts)
  if (typeof listed.then === 'function') return listed // 1.x
  const out = []
  while (listed.hasNext) out.push(...(await listed.nextItems()))
  return out
}

const text = (bytes) => new TextDecoder().decode(bytes)

// Each scenario gets { sdk, sandbox, dir, template, create, reach, parallel }: a sandbox and a folder in it that the
// scenarios of one run share, and what makes further sandboxes.
export const scenarios = {
  'create and info': async ({ sandbox, template }) => {
    assert.match(sandbox.sandboxId, /^[a-z0-9]+$/)
    assert.equal(await sandbox.isRunning(), true)
    if (!sandbox.getInfo) absent('no getInfo')
    const info = await sandbox.getInfo()
    assert.equal(info.sandboxId, sandbox.sandboxId)
    assert.equal(info.templateId, template)
    assert.deepEqual(info.metadata, { suite: 'matrix', 'a b&=+%': 'ü 値' })
    assert.ok(info.endAt > new Date())
  },

  'command output and exit code': async ({ sandbox, sdk }) => {
    const ok = await sandbox.commands.run('echo out; echo err >&2')
    assert.deepEqual([ok.stdout, ok.stderr, ok.exitCode], ['out\n', 'err\n', 0])
    const error = await errorOf(sandbox.commands.run('echo partial; exit 3'))
    hasClass(error, 'CommandExitError')
    assert.deepEqual([error.stdout, error.exitCode], ['partial\n', 3])
    assert.ok(error instanceof sdk.CommandExitError)
  },

  'environment variables': async ({ sandbox }) => {
    const out = await sandbox.commands.run('echo "$GLOBAL $CALL"', { envs: { CALL: 'call' } })
    assert.equal(out.stdout, 'global call\n')
    const wins = await sandbox.commands.run('echo "$GLOBAL"', { envs: { GLOBAL: 'override' } })
    assert.equal(wins.stdout, 'override\n')
  },

  'background command, list and stream': async ({ sandbox }) => {
    let streamed = ''
    const handle = await sandbox.commands.run('for i in 1 2 3; do echo $i; done; read go', {
      background: true,
      stdin: true,
      onStdout: (chunk) => (streamed += chunk),
    })
    assert.ok((await sandbox.commands.list()).some((p) => p.pid === handle.pid))
    await sandbox.commands.sendStdin(handle.pid, 'go\n')
    const result = await handle.wait()
    assert.equal(result.stdout, '1\n2\n3\n')
    assert.equal(streamed, '1\n2\n3\n')
  },

  'standard input': async ({ sandbox }) => {
    let seen = ''
    const handle = await sandbox.commands.run('read line; echo "got $line"', {
      background: true,
      stdin: true,
      onStdout: (chunk) => (seen += chunk),
    })
    await sandbox.commands.sendStdin(handle.pid, 'hello\n')
    await handle.wait()
    assert.equal(seen, 'got hello\n')
  },

  'closing standard input': async ({ sandbox }) => {
    if (!sandbox.commands.closeStdin) absent('no closeStdin')
    const handle = await sandbox.commands.run('cat', { background: true, stdin: true })
    await sandbox.commands.sendStdin(handle.pid, 'to the end')
    await sandbox.commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, 'to the end')
  },

  'connect to a running command': async ({ sandbox }) => {
    const first = await sandbox.commands.run('read go; echo late', { background: true, stdin: true })
    await first.disconnect()
    const second = await sandbox.commands.connect(first.pid)
    await sandbox.commands.sendStdin(first.pid, 'go\n')
    assert.equal((await second.wait()).stdout, 'late\n')
  },

  'kill a command': async ({ sandbox }) => {
    const handle = await sandbox.commands.run('sleep 1000', { background: true })
    assert.equal(await sandbox.commands.kill(handle.pid), true)
    hasClass(await errorOf(handle.wait()), 'CommandExitError')
    assert.equal(await sandbox.commands.kill(handle.pid), false)
  },

  'command timeout': async ({ sandbox }) => {
    hasClass(await errorOf(sandbox.commands.run('sleep 1000', { timeoutMs: 300 })), 'TimeoutError')
    await until(async () => !(await sandbox.commands.list()).some((p) => p.args?.includes('sleep 1000')), 'the end of the process')
  },

  'terminal': async ({ sandbox }) => {
    let screen = ''
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: (bytes) => (screen += text(bytes)) })
    const type = (line) => sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode(line))
    await sandbox.pty.resize(terminal.pid, { cols: 111, rows: 33 })
    await type('stty size; echo sum=$((40+2))\n')
    await until(() => screen.includes('33 111') && screen.includes('sum=42'), 'the output of the terminal')
    await sandbox.pty.kill(terminal.pid)
    await errorOf(terminal.wait())
  },

  'files': async ({ sandbox, dir: home }) => {
    const dir = `${home}/files ü 値 %41+`
    const file = `${dir}/näme 値 %2F.txt`
    assert.equal(await sandbox.files.makeDir(dir), true)
    assert.equal(await sandbox.files.makeDir(dir), false)
    await sandbox.files.write(file, 'content ü\n')
    assert.equal(await sandbox.files.read(file), 'content ü\n')
    assert.equal(await sandbox.files.exists(file), true)
    assert.deepEqual((await sandbox.files.list(dir)).map((e) => [e.name, e.type]), [['näme 値 %2F.txt', 'file']])
    if (sandbox.files.getInfo) assert.equal((await sandbox.files.getInfo(file)).size ?? 11, 11)
    await sandbox.files.rename(file, `${dir}/b`)
    assert.equal(await sandbox.files.exists(file), false)
    await sandbox.files.remove(`${dir}/b`)
    assert.equal(await sandbox.files.exists(`${dir}/b`), false)
    hasClass(await errorOf(sandbox.files.read(`${dir}/b`)), 'NotFoundError')
  },

  'several files at once': async ({ sandbox, dir }) => {
    await sandbox.files.write([
      { path: `${dir}/many/one`, data: '1' },
      { path: `${dir}/many/deep/two`, data: '2' },
    ])
    assert.equal((await sandbox.commands.run(`cat ${dir}/many/one ${dir}/many/deep/two`)).stdout, '12')
  },

  // What does not compress is what a download that compresses is slow at: at 40 MB, too slow for the request timeout.
  'large file': async ({ sandbox, dir, thorough }) => {
    const data = randomBytes(thorough ? 40_000_000 : 10_000_000)
    await sandbox.files.write(`${dir}/large`, new Blob([data]))
    const back = await sandbox.files.read(`${dir}/large`, { format: 'bytes' })
    assert.equal(createHash('sha256').update(back).digest('hex'), createHash('sha256').update(data).digest('hex'))
    const sum = await sandbox.commands.run(`sha256sum ${dir}/large; rm ${dir}/large`)
    assert.equal(sum.stdout.split(' ')[0], createHash('sha256').update(data).digest('hex'))
  },

  'large output': async ({ sandbox }) => {
    const out = await sandbox.commands.run('head -c 2000000 /dev/zero | tr "\\0" x')
    assert.equal(out.stdout.length, 2_000_000)
  },

  'watch a directory': async ({ sandbox, dir }) => {
    await sandbox.files.makeDir(`${dir}/watched`)
    const events = []
    const watch = await sandbox.files.watchDir(`${dir}/watched`, (event) => events.push(`${event.type} ${event.name}`))
    await sandbox.files.write(`${dir}/watched/new`, 'x')
    await until(() => events.includes('create new') && events.includes('write new'), `events; saw ${events}`)
    await watch.stop()
  },

  'list by metadata': async ({ sdk, sandbox }) => {
    const ids = async (metadata) => {
      const opts = { query: { metadata } }
      return (await listAll(sdk, opts)).map((s) => s.sandboxId)
    }
    const mark = sandbox.matrixMark
    assert.deepEqual(await ids({ mark }), [mark.startsWith('m') ? sandbox.markedId : undefined])
    assert.deepEqual(await ids({ mark, 'a b&=+%': 'ü 値' }), [sandbox.markedId])
    assert.deepEqual(await ids({ mark: mark + '!' }), [])
  },

  'timeout and connect': async ({ sdk, sandbox }) => {
    const end = async () => (await sandbox.getInfo()).endAt.getTime()
    if (!sandbox.getInfo) absent('no getInfo')
    await sandbox.setTimeout(600_000)
    const long = await end()
    assert.ok(Math.abs(long - Date.now() - 600_000) < 30_000, `ends at ${new Date(long)}`)
    const again = await sdk.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 700_000 })
    assert.equal((await again.commands.run('echo again')).stdout, 'again\n')
    if (sandbox.betaPause || sandbox.pause) assert.ok((await end()) >= long - 1000, 'connect shortened the life')
    await sandbox.setTimeout(300_000)
    assert.ok((await end()) < long, 'set_timeout did not shorten')
  },

  // The two meanings of a timeout. Asking whether a sandbox runs is no activity; running a command is.
  'idle and absolute timeout': async ({ create, thorough }) => {
    if (!thorough) absent('not run')
    const life = 3000
    const begin = Date.now()
    const idle = await create({ timeoutMs: life })
    const absolute = await create({ timeoutMs: life, metadata: { 'agentbox.scitix.ai/timeout-mode': 'absolute' } })
    const ended = new Map()
    const busy = async (sandbox) => {
      try {
        for (;;) {
          await sandbox.commands.run('true')
          if (sandbox === idle && Date.now() - begin > 2 * life) return
        }
      } catch (error) {
        ended.set(sandbox, Date.now() - begin)
      }
    }
    await Promise.all([busy(idle), busy(absolute)])
    assert.ok(ended.has(absolute), 'activity kept a sandbox with an absolute timeout alive')
    assert.ok(ended.get(absolute) >= life - 1000, `an absolute timeout ended after ${ended.get(absolute)} ms`)
    assert.ok(!ended.has(idle), `a busy sandbox was ended after ${ended.get(idle)} ms`)
    await until(async () => !(await idle.isRunning()), 'the end of the sandbox without activity')
    assert.deepEqual((await absolute.constructor.list({ query: { metadata: { 'agentbox.scitix.ai/timeout-mode': 'absolute' } } }).nextItems()).length, 0)
  },

  'metrics': async ({ sandbox, template }) => {
    if (!sandbox.getMetrics) absent('no getMetrics')
    const points = await sandbox.getMetrics()
    assert.ok(points.length >= 1 && points[0].cpuCount >= 1, JSON.stringify(points))
    const [point] = points
    const number = async (command) => Number((await sandbox.commands.run(`{ ${command}; } 2>/dev/null || true`)).stdout)
    // A sandbox that sees no control group has no limit that could be told: then it is the machine's.
    const machine = 1024 * (await number("awk '/^MemTotal:/ { print $2 }' /proc/meminfo"))
    const memory = await number('cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes || cat memory.max')
    const cpu = await number("cd /sys/fs/cgroup; cat cpu/cpu.cfs_quota_us || cut -d' ' -f1 cpu.max")
    if (template === 'default') { // its pool: 1 CPU, 2Gi
      assert.ok([0, 2 ** 31].includes(memory) && [0, 100_000].includes(cpu), `limits ${memory} and ${cpu}`)
      if (cpu) assert.equal(point.cpuCount, 1)
    }
    assert.equal(point.memTotal, Math.min(memory || machine, machine))
    assert.ok(point.memUsed > 0 && point.memUsed < point.memTotal, JSON.stringify(point))
    await sandbox.commands.run('i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done')
    const [busy] = await sandbox.getMetrics()
    assert.ok(busy.cpuUsedPct > 0 && busy.cpuUsedPct <= 100, JSON.stringify(busy))
  },

  'bad key': async ({ sdk, template, major }) => {
    const apiKey = 'e2b_' + '0'.repeat(64)
    const error = await errorOf(sdk.Sandbox.create(template, { apiKey }))
    if (major >= 2) hasClass(error, 'AuthenticationError')
    else assert.match(error.message, /^401: /) // 1.x has no class for it
  },

  'unknown template': async ({ sdk, template }) => {
    const error = await errorOf(sdk.Sandbox.create('no-such-env'))
    hasClass(error, 'SandboxError', 'NotFoundError')
    assert.ok(error.message.includes('no-such-env') && error.message.includes(template), error.message)
  },

  'what is not supported is refused': async ({ sdk, template }) => {
    const error = await errorOf(sdk.Sandbox.create(template, { allowInternetAccess: false }))
    hasClass(error, 'SandboxError')
    assert.match(error.message, /egress control/)
  },

  'kill, twice, and what is left': async ({ sdk, create }) => {
    const sandbox = await create()
    assert.equal(await sdk.Sandbox.kill(sandbox.sandboxId), true)
    assert.equal(await sdk.Sandbox.kill(sandbox.sandboxId), false)
    assert.equal(await sandbox.isRunning(), false)
    await errorOf(sandbox.commands.run('echo alive'))
    await errorOf(sdk.Sandbox.connect(sandbox.sandboxId))
    await errorOf(sdk.Sandbox.setTimeout(sandbox.sandboxId, 1000))
  },

  'kill while a command runs': async ({ create, major, minor }) => {
    const sandbox = await create()
    let started
    const running = new Promise((resolve) => (started = resolve))
    const command = errorOf(sandbox.commands.run('echo started; sleep 1000', { timeoutMs: 0, onStdout: started }))
    await Promise.race([running, command])
    await sandbox.kill()
    const error = await command
    hasClass(error, major > 2 || minor >= 45 ? 'TimeoutError' : 'SandboxError')
  },

  'port of a sandbox': async ({ sandbox, dir, reach }) => {
    const port = randomInt(20_000, 30_000)
    const closed = await reach(sandbox, 4567, '/')
    assert.equal(closed.status, 502)
    const body = await closed.json()
    assert.deepEqual(body, {
      sandboxId: sandbox.sandboxId,
      message: 'The sandbox is running but port is not open',
      port: 4567,
      code: 502,
    })
    const server = `if command -v python3 >/dev/null; then exec python3 -m http.server ${port} --directory ${dir}; fi
      if busybox httpd --help >/dev/null 2>&1; then exec busybox httpd -f -p ${port} -h ${dir}; fi
      if command -v perl >/dev/null; then exec perl -MIO::Socket::INET -e '
        $s = IO::Socket::INET->new(LocalPort => ${port}, Listen => 5, ReuseAddr => 1) or die;
        while ($c = $s->accept) {
          while (<$c>) { last if /^\\r?\\n$/ }
          open F, "${dir}/index.html"; $b = join "", <F>;
          print $c "HTTP/1.1 200 OK\\r\\nContent-Length: " . length($b) . "\\r\\nConnection: close\\r\\n\\r\\n$b"; close $c
        }'; fi
      echo none; exit 9`
    await sandbox.files.write(`${dir}/index.html`, 'from the port')
    const handle = await sandbox.commands.run(server, { background: true, timeoutMs: 0 })
    let ended
    handle.wait().catch((error) => (ended = error))
    await until(async () => ended?.exitCode === 9 || (await reach(sandbox, port, '/')).status === 200, 'the server')
    if (ended?.exitCode === 9) absent('no web server in the image')
    assert.equal(await (await reach(sandbox, port, '/index.html')).text(), 'from the port')
    await handle.kill()
  },

  'many at once': async ({ create, parallel }) => {
    const made = await Promise.allSettled(Array.from({ length: parallel }, () => create()))
    const sandboxes = made.filter((m) => m.status === 'fulfilled').map((m) => m.value)
    try {
      const failed = made.filter((m) => m.status === 'rejected').map((m) => String(m.reason))
      assert.deepEqual(failed, [])
      assert.equal(new Set(sandboxes.map((s) => s.sandboxId)).size, parallel)
      const outputs = await Promise.all(sandboxes.map((s) => s.commands.run('echo "$GLOBAL"').then((r) => r.stdout)))
      assert.deepEqual([...new Set(outputs)], ['global\n'])
    } finally {
      await Promise.all(sandboxes.map((s) => s.kill()))
    }
  },
}

export { Absent }
