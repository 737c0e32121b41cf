"""`habitat-tui mcp`, through the protocol's own Python library and with invalid lines."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import anyio
import jsonschema
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

PROGRAM = os.environ["HABITAT_TUI_PROGRAM"]
SHAPES = pathlib.Path(__file__).parent.parent / "fixtures/shapes/mlp.py"
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}


def with_client(use):
    """Runs `use(session)` with a server."""

    async def main():
        server = StdioServerParameters(command=PROGRAM, args=["mcp"], env=dict(os.environ))
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            return await use(session)

    return anyio.run(main)


def field(value, *names):
    """A field by its Python name or by that of the protocol, which differ between versions of the library."""
    return next(getattr(value, name) for name in names if hasattr(value, name))


class Client(unittest.TestCase):
    def test_tools_have_schemas(self):
        async def use(session):
            return (await session.list_tools()).tools

        tools = {tool.name: tool for tool in with_client(use)}
        self.assertEqual(set(tools), {"predict", "plan", "trace_shapes", "explain"})
        for name, schema in (("predict", "predictions"), ("plan", "plan"), ("explain", "difference")):
            printed = json.loads(subprocess.check_output([PROGRAM, "schema", schema]))
            self.assertEqual(field(tools[name], "output_schema", "outputSchema"), printed, name)
            self.assertTrue(field(tools[name].annotations, "read_only_hint", "readOnlyHint"))
        self.assertEqual(field(tools["predict"], "input_schema", "inputSchema")["required"], ["gpus"])
        self.assertFalse(field(tools["trace_shapes"].annotations, "read_only_hint", "readOnlyHint"))

    def test_calls_answer_as_the_commands_do(self):
        async def use(session):
            with tempfile.TemporaryDirectory() as folder:
                profile = os.path.join(folder, "mlp.habitat.json.zst")
                traced = {"function": f"{SHAPES}:build", "batch_size": 16, "output": profile}
                return {
                    "trace": await session.call_tool("trace_shapes", {**traced, "python": os.sys.executable}),
                    "predict": await session.call_tool("predict", {"file": traced["output"], "gpus": ["l4"]}),
                    "explain": await session.call_tool("explain", {"gpus": ["l4", "h100-sxm"]}),
                    "plan": await session.call_tool("plan", {"steps": "1M", "deadline": "30d"}),
                    "none": await session.call_tool("plan", {"steps": 1000000, "budget": 1}),
                }

        found = with_client(use)
        answers = {}
        for name, result in found.items():
            self.assertFalse(field(result, "is_error", "isError"), result)
            answers[name] = field(result, "structured_content", "structuredContent")
            self.assertEqual(json.loads(result.content[0].text), answers[name], name)
            self.assertLess(len(result.content[0].text), 50_000, name)
        self.assertEqual(answers["predict"]["predictions"][0]["gpu"], "l4")
        self.assertEqual(answers["predict"]["workload"]["batch_size"], 16)
        printed = subprocess.check_output([PROGRAM, "predict", "--to", "l4,h100-sxm", "--difference", "--json"])
        self.assertEqual(answers["explain"], json.loads(printed))
        self.assertTrue(answers["plan"]["parts"])
        self.assertTrue(answers["none"]["reasons"] and not answers["none"]["parts"])

    def test_answers_follow_the_printed_schemas(self):
        for schema, command in (
            ("predictions", ["predict", "--operations", "--to", "l4,h100-sxm"]),
            ("plan", ["plan", "--steps", "1M", "--max-machines", "2", "--accept", "spot,marketplace"]),
            ("plan", ["plan", "--steps", "1M", "--budget", "1"]),
            ("difference", ["predict", "--to", "l4,h100-sxm", "--difference"]),
            ("comparison", ["predict", "--to", "l4", "--all-methods"]),
        ):
            printed = json.loads(subprocess.check_output([PROGRAM, "schema", schema]))
            answer = json.loads(subprocess.run([PROGRAM, *command, "--json"], capture_output=True).stdout)
            jsonschema.validate(answer, printed)

    def test_what_fails_is_an_error_with_the_message_of_the_program(self):
        async def use(session):
            missing = await session.call_tool("predict", {"file": "-missing.json", "gpus": ["l4"]})
            unknown = await session.call_tool("predict", {"gpus": ["nosuch"]})
            flags = [
                await session.call_tool("plan", {}),
                await session.call_tool("plan", {"epochs": 3}),
                await session.call_tool("plan", {"steps": "1M", "own": ["3x"]}),
                await session.call_tool("plan", {"steps": "100M", "budget": 1, "rejected": True}),
                await session.call_tool("explain", {"gpus": ["h100", "l4"]}),
                await session.call_tool("predict", {"gpus": ["h100"]}),
            ]
            refused = []
            for name, arguments in (("predict", {}), ("predict", {"gpus": ["l4"], "x": 1}), ("rm", {})):
                try:
                    await session.call_tool(name, arguments)
                except Exception as error:
                    refused.append(str(error))
            fine = await session.call_tool("predict", {"gpus": ["l4"]})
            return missing, unknown, refused, fine, flags

        missing, unknown, refused, fine, flags = with_client(use)
        self.assertTrue(field(missing, "is_error", "isError"))
        self.assertIn("-missing.json: no such file", missing.content[0].text)
        self.assertIn('no GPU "nosuch"', unknown.content[0].text)
        for result in flags:
            for block in result.content:
                self.assertNotRegex(block.text.replace("--what-if (of the command line)", ""), "--[a-z]")
        self.assertEqual(len(refused), 3, refused)
        self.assertIn("gpus", refused[0])
        self.assertFalse(field(fine, "is_error", "isError"))

    def test_calls_run_beside_one_another(self):
        async def use(session):
            found = {}

            async def call(gpu):
                result = await session.call_tool("predict", {"gpus": [gpu]})
                found[gpu] = field(result, "structured_content", "structuredContent")["predictions"][0]["gpu"]

            async with anyio.create_task_group() as group:
                for gpu in ("l4", "rtx-4090", "h200", "a100-pcie-40gb", "b100", "v100-sxm2-16gb"):
                    group.start_soon(call, gpu)
            return found

        for asked, answered in with_client(use).items():
            self.assertTrue(answered.startswith(asked), (asked, answered))


def spoken(lines):
    """The responses to lines, each a request, text or bytes; and the exit code."""
    said = b""
    for line in lines:
        said += (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n"
    ended = subprocess.run([PROGRAM, "mcp"], input=said, capture_output=True, timeout=300)
    return [json.loads(line) for line in ended.stdout.splitlines()], ended.returncode


def request(number, method, **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class Damaged(unittest.TestCase):
    def test_the_server_outlives_what_it_cannot_read(self):
        damaged = [
            b"", b"nonsense", b"{", b"[]", b"null", b"\xff\xfe\x00", b'{"jsonrpc": "2.0"}', b"[" * 100_000,
            b'{"jsonrpc": "2.0", "id": 7}', b'{"jsonrpc": "1.0", "id": 8, "method": "ping"}',
            b'{"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": 3}}',
            b'{"jsonrpc": "2.0", "id": 10, "method": "tools/call", "params": []}',
            b'{"jsonrpc": "2.0", "method": "notifications/nonsense"}', b"x" * (17 << 20),
            request(11, "tools/call", name="predict", arguments={"gpus": "l4"}),
            request(12, "tools/call", name="predict", arguments={"gpus": []}),
            request(13, "no/such/method"), {"jsonrpc": "2.0", "id": 14, "method": "tools/call"},
        ]  # fmt: skip
        for before, after in (([], damaged), (damaged, [])):
            opened = [request(1, "initialize", **HELLO), {"jsonrpc": "2.0", "method": "notifications/initialized"}]
            last = request(99, "tools/call", name="predict", arguments={"gpus": ["l4"]})
            answers, code = spoken([*before, *opened, *after, last])
            self.assertTrue(all("id" in answer for answer in answers), answers)
            by = {answer["id"]: answer for answer in answers}
            if after:
                # No method, or not an object: the request of the error is unknown.
                self.assertEqual(by[None]["error"]["code"], -32600)
                self.assertNotIn(7, by)
            self.assertEqual(code, 0)
            self.assertEqual(by[1]["result"]["serverInfo"]["name"], "habitat-tui")
            self.assertIn("structuredContent", by[99]["result"], before and "before")
            if after:
                for number in (9, 10, 11, 13):
                    self.assertIn("error", by.get(number) or by[None], number)
                self.assertTrue("error" in by[12] or by[12]["result"]["isError"])
                codes = {number: by[number]["error"]["code"] for number in (9, 11, 13, 14)}
                self.assertEqual(codes, {9: -32602, 11: -32602, 13: -32601, 14: -32602})
                self.assertIn("name", by[14]["error"]["message"])

    def test_nothing_is_an_end(self):
        self.assertEqual(spoken([]), ([], 0))


if __name__ == "__main__":
    unittest.main()
