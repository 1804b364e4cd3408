"""Reverse proxies that route nothing: the least that Starlette and a client can do, round robin. For comparison."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route


def aiohttp_app(urls: list[str]) -> Starlette:
    turns, clients = itertools.cycle(urls), []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as client:
            clients.append(client)
            yield

    async def relay(request: Request) -> StreamingResponse:
        body = await request.body()
        upstream = await clients[0].post(next(turns) + request.scope["path"], data=body)
        return StreamingResponse(
            upstream.content.iter_any(), upstream.status, {"content-type": upstream.headers["content-type"]}
        )

    return Starlette(routes=[Route("/{path:path}", relay, methods=["POST"])], lifespan=lifespan)


def httpx_app(urls: list[str]) -> Starlette:
    turns, clients = itertools.cycle(urls), []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(limits=limits, timeout=600, trust_env=False) as client:
            clients.append(client)
            yield

    async def relay(request: Request) -> StreamingResponse:
        body = await request.body()
        client = clients[0]
        asked = client.build_request("POST", next(turns) + request.scope["path"], content=body)
        upstream = await client.send(asked, stream=True)
        return StreamingResponse(
            upstream.aiter_raw(), upstream.status_code, {"content-type": upstream.headers["content-type"]}
        )

    return Starlette(routes=[Route("/{path:path}", relay, methods=["POST"])], lifespan=lifespan)


NGINX = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log stderr crit;
events {{ worker_connections 16384; }}
http {{
  access_log off; client_max_body_size 64m; proxy_request_buffering off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream engines {{ {servers} keepalive 4096; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=["aiohttp", "httpx"])
    parser.add_argument("port", type=int)
    parser.add_argument("urls", nargs="+")
    options = parser.parse_args()
    apps: dict[str, Any] = {"aiohttp": aiohttp_app, "httpx": httpx_app}
    uvicorn.run(
        apps[options.client](options.urls), port=options.port, log_level="critical", loop="uvloop", backlog=4096
    )


if __name__ == "__main__":
    main()
