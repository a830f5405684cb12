"""The local page in the browser: load a file, follow its recovery, download the results."""

import os
import secrets
import socket
import threading
import time
import webbrowser
from pathlib import Path

from unfade.errors import InvalidData, UnfadeError

HOST = "127.0.0.1"
KEY_VARIABLE = "UNFADE_APP_KEY"  # how the page learns which key to ask for
UPLOAD_MEGABYTES = 200
WAIT_SECONDS = 30  # for so long a fit goes on while no page waits for it
RETURN_SECONDS = 300  # for so long a browser that went away finds again what it had
_OPTIONS = {
    "browser_gatherUsageStats": False,
    "browser_serverAddress": HOST,
    "client_allowedOrigins": [],
    "client_showErrorDetails": "none",
    "client_showErrorLinks": False,
    "client_toolbarMode": "minimal",
    "global_developmentMode": False,
    "logger_hideWelcomeMessage": True,
    "runner_magicEnabled": False,
    "server_address": HOST,
    "server_allowedHosts": [HOST, "localhost"],
    "server_disconnectedSessionTTL": RETURN_SECONDS,
    "server_enableAgentApi": False,
    "server_enableCORS": True,
    "server_enableStaticServing": False,
    "server_enableXsrfProtection": True,
    "server_fileWatcherType": "none",
    "server_headless": True,
    "server_maxUploadSize": UPLOAD_MEGABYTES,
    "theme_primaryColor": "#2f6f8f",
}


def serve(port: int | None = None, open_browser: bool = True) -> None:
    """Serve the page on this computer alone until interrupted, and print its address, which holds a secret key.

    Parameters
    ----------
    port : int or None
        None: a free one. Only this computer can reach the page, and it reaches nothing else.
    open_browser : bool
    """
    try:
        from streamlit import net_util
        from streamlit.web import bootstrap
    except ImportError:
        raise UnfadeError("The page needs Streamlit, which is not installed. Use pip install 'unfade[app]'.") from None
    from unfade.app.jobs import end_all

    port = _usable(port)
    os.environ[KEY_VARIABLE] = key = secrets.token_urlsafe(24)
    options = {**_OPTIONS, "server_port": port, "browser_serverPort": port}
    # A request that some other page sends would make Streamlit ask a server on the internet for this computer's address.
    net_util.get_external_ip = lambda: None
    bootstrap.load_config_options(options)
    address = f"http://{HOST}:{port}/?key={key}"
    threading.Thread(target=_announce, args=(address, port, open_browser), daemon=True).start()
    try:
        bootstrap.run(str(Path(__file__).with_name("page.py")), False, [], options)
    finally:
        end_all()


def _usable(port: int | None) -> int:
    """Return the port if it is free; a free one if None is given."""
    if port is not None and not 1 <= port <= 65535:
        raise InvalidData(f"A port is a number from 1 to 65535, got {port}.")
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port or 0))
        except OSError as error:
            raise InvalidData(f"Port {port} cannot be used ({error.strerror}). Give another, or none at all.") from None
        return int(trial.getsockname()[1])


def _announce(address: str, port: int, open_browser: bool) -> None:
    """Print the address once the page can be reached."""
    for _ in range(600):
        with socket.socket() as trial:
            if trial.connect_ex((HOST, port)) == 0:
                break
        time.sleep(0.1)
    print(f"unfade: open {address}\nFor this computer only. Press Ctrl-C to end.", flush=True)
    if open_browser:
        webbrowser.open(address)
